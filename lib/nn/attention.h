// Self-attention: q, k, v projections, optional per-head q/k norm, optional RoPE, causal attention,
// output projection. Decoding with a KV cache is the same code: k and v are then rows of the cache.
#pragma once

#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/attention.h"
#include "plan/model.h"

namespace trainctl {

struct Attention {
  Linear q, k, v, out;
  Norm q_norm, k_norm;  // empty without q/k norm
  Tensor rope_table;    // [positions, head_dim] fp32; empty without RoPE
  float dropout = 0;    // of the probabilities
  std::int64_t dropout_site = 0;
  std::int64_t heads = 0;
  std::int64_t seq_length = 0;  // for dropout's element index

  /// T new tokens, K visible keys (T in training).
  struct Saved {
    AttentionShape shape;
    Tensor x;               // [T, hidden]
    Tensor q_raw, k_raw;    // [T, features] before the q/k norm; as q and k without one
    Tensor q_rstd, k_rstd;  // [T * heads], [T * kv_heads] fp32
    Tensor q, k, v;         // [T, features] as attention reads them
    Tensor keys, values;    // [K, features]: k and v in training, the cache in decoding
    Tensor context;         // [T, heads * head_dim]
    Tensor logsumexp;       // [T * heads] fp32
    Tensor y;               // [T, hidden]
  };
  struct Gradients {
    Tensor dy;         // [T, hidden]
    Tensor d_context;  // [T, heads * head_dim]
    Tensor dq, dk, dv;
    Tensor dx;  // [T, hidden]
  };

  void forward(const Pass& pass, const Saved& saved) const;
  void backward_input(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  void backward_weight(const Pass& pass, const Saved& saved, const Gradients& gradients) const;

 private:
  AttentionDropout dropout_of(const Pass& pass) const;
};

/// `name` is "layers.N.attention".
Attention make_attention(const WeightSource& weights, const ModelShape& model,
                         const std::string& name, const Tensor& rope_table);

}  // namespace trainctl
