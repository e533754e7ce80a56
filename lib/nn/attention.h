// Self-attention: q, k, v projections, optional per-head q/k norm, optional RoPE, causal attention,
// output projection. In decoding, attention reads the keys and values of a cache, to which k and v
// are added.
#pragma once

#include "nn/exchange/gathered_products.h"
#include "nn/exchange/shared_keys.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/attention.h"
#include "plan/model/form.h"

namespace trainctl {

/// The groups of a layer's ranks.
struct LayerGroups {
  TensorParallel tp;
  ContextParallel context{};
  std::int64_t sequences = 1;  // of a micro-batch
  BlockSplit split{};          // of the operators over tp
  bool moves_at_once = false;  // OperatorSplits::moves_at_once
};

struct Attention {
  Linear q, k, v, out;
  GatheredProducts enter;
  Reshard leave;
  // Over context-parallel ranks, or where attention is split by tokens over tensor-parallel ones;
  // without a group: nothing to move.
  Reshard to_heads, from_heads;
  SplitBy split = SplitBy::features;
  ContextParallel context{};
  SharedKeys shared_keys;
  Norm q_norm, k_norm;      // empty without q/k norm
  bool whole_norm = false;  // over all heads at once
  bool norm_after_rope = false;
  Tensor rope_table;      // [positions, RopeForm::size] fp32; empty without RoPE
  bool adjacent = false;  // RopeForm::interleaved
  float dropout = 0;      // of the probabilities
  std::int64_t dropout_site = 0;
  std::int64_t first_head = 0;  // that attention works on
  std::int64_t heads = 0;       // of all ranks
  std::int64_t seq_length = 0;  // for the element index of dropout
  std::size_t layer = 0;        // of the model

  /// T new tokens (S of them in this rank's part of the residual stream), K keys (T in training),
  /// heads and features of this rank; S and T are to each other as in MlpSaved. Attention itself
  /// works on Q queries and on its own part of the features: where heads are exchanged over h
  /// ranks, Q is hT and so is K, and the features are 1 / h of the rank's. Where they are not,
  /// queries is q, attended is context, and so are their gradients.
  struct Saved {
    AttentionShape shape;
    Tensor x;              // [S, hidden]
    Tensor all_x;          // [T, hidden] temporary, unless it is kept
    bool keeps_x = false;  // all_x is still there in R and W
    Tensor q_raw,
        k_raw;  // [T, features] before the q/k norm; without a norm, the same memory as q and k
    Tensor q_rstd, k_rstd;  // [T * heads], [T * kv_heads] fp32
    Tensor q, k, v;         // [T, features]
    Tensor queries;         // [Q, features]
    Tensor keys, values;    // [K, features]
    Tensor attended;        // [Q, features]
    Tensor context;         // [T, heads * head_dim]
    Tensor logsumexp;       // [T * heads] fp32
    SharedKeys::Buffers shared;
    Tensor partial;  // [T, hidden] temporary
    Tensor y;        // [S, hidden]
  };
  struct Gradients {
    Tensor dy;         // [S, hidden]
    Tensor all_dy;     // [T, hidden]
    Tensor d_context;  // [T, heads * head_dim]
    Tensor d_attended, d_queries, d_keys, d_values;
    Tensor dq, dk, dv;
    Tensor partial_dx;  // [T, hidden] temporary
    Tensor dx;          // [S, hidden]
  };

  void forward(const Pass& pass, const Saved& saved) const;
  /// The three parts of the forward: q, k and v, from x, or from all_x without `gathers`; attention
  /// itself; the output and its sum.
  void project(const Pass& pass, const Saved& saved, bool gathers) const;
  void attend(const Pass& pass, const Saved& saved) const;
  void finish(const Pass& pass, const Saved& saved) const;
  void backward_input(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  void backward_weight(const Pass& pass, const Saved& saved, const Gradients& gradients) const;

 private:
  /// Adds the keys and values of the pass's tokens to its cache; attention then sees all of those.
  Saved remember(const Pass& pass, Saved saved) const;
  AttentionDropout dropout_of(const Pass& pass) const;
  /// Where each query's document begins.
  Tensor first_position(const Pass& pass) const {
    return context.own_queries(pass.batch.first_position);
  }
  bool exchanges_heads() const { return to_heads.group != nullptr; }
  /// From the gradient of the context to those of q, k and v after RoPE.
  void backward_attend(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  void backward_rope(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  void norm_forward(const Pass& pass, const Saved& saved) const;
  void norm_backward(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  /// Rows that the q/k norm is over: of heads, or of tokens.
  Tensor norm_rows(const Tensor& x, std::int64_t head_dim) const;
  void add_first_weights(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
};

/// `name` is "layers.N.attention", `exchanges` those of attention_exchanges.
Attention make_attention(const WeightSource& weights, const ModelShape& model,
                         const AttentionForm& form, const std::string& name,
                         const LayerGroups& groups, const Exchanges& exchanges);

}  // namespace trainctl
