// Self-attention: q, k, v projections, optional q/k norm, RoPE and temperature, causal attention,
// perhaps with sinks and an output gate, output projection. In decoding, attention reads the keys
// and values of a cache, to which k and v are added.
#pragma once

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/shared_keys.h"
#include "ops/attention.h"

namespace trainctl {

struct StageInput;

struct Attention {
  Linear q, k, v, out;
  Linear gate;  // makes the output gate; empty without a gate
  Reshard enter, leave;
  // Exchanges of heads between context-parallel ranks, or between tensor-parallel ranks if
  // attention is split by tokens. No data moves without a group.
  Reshard to_heads, from_heads;
  SplitBy split = SplitBy::features;
  ContextParallel context{};
  SharedKeys shared_keys;
  Norm q_norm, k_norm;          // empty without q/k norm
  Group* norm_group = nullptr;  // ranks that share each row of a q/k norm; null if none do
  bool whole_norm = false;      // the q/k norm is over all heads of a token
  bool norm_after_rope = false;
  Tensor rope_table;         // [positions, RopeForm::size] fp32; empty without RoPE
  bool adjacent = false;     // RopeForm::interleaved
  Tensor temperature_table;  // [positions, head_dim] fp32, scales the queries; empty without
  Weight sinks;              // [heads of the rank's products] fp32; empty without
  float dropout = 0;         // dropout probability of the attention weights
  std::int64_t dropout_site = 0;
  std::int64_t first_head = 0;  // the first head that attention works on here
  std::int64_t heads = 0;       // heads of all ranks together
  std::int64_t seq_length = 0;  // tokens per sequence, for the element index of dropout
  std::size_t layer = 0;        // index in the model

  /// Sizes: T new tokens, S of which are in this rank's part of the residual stream (see MlpSaved);
  /// K keys, T in training; heads and features are this rank's. Attention itself works on Q
  /// queries: if h ranks exchange heads, Q = K = h T and attention has 1 / h of the rank's
  /// features. If none do, `queries` is `q`, `attended` is `context`, and so are their gradients.
  struct Saved {
    AttentionShape shape;
    Tensor x;              // [S, hidden]
    Tensor all_x;          // [T, hidden] temporary, unless it is kept
    bool keeps_x = false;  // all_x stays valid until R and W
    Tensor q_raw,
        k_raw;  // [T, features] before the q/k norm; without a norm, the same memory as q and k
    Tensor q_rstd, k_rstd;  // [T * heads], [T * kv_heads] fp32
    Tensor norm_sums;       // [2, T] fp32 temporary; empty unless ranks divide the norms' rows
    Tensor q, k, v;         // [T, features]
    Tensor queries;         // [Q, features]
    Tensor keys, values;    // [K, features]
    Tensor attended;        // [Q, features]
    Tensor context;         // [T, heads * head_dim]
    Tensor gate;            // as context; empty without an output gate
    Tensor gated;           // temporary, shaped as context: input of the output projection
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
    Tensor d_gate;
    Tensor partial_dx;  // [T, hidden] temporary
    Tensor dx;          // [S, hidden]
  };

  void forward(const Pass& pass, const Saved& saved) const;
  /// The three parts of forward. `project` makes q, k and v from x, or from all_x without
  /// `gathers`; `attend` is attention itself; `finish` makes the output and sums it over the ranks.
  void project(const Pass& pass, const Saved& saved, bool gathers) const;
  void attend(const Pass& pass, const Saved& saved) const;
  void finish(const Pass& pass, const Saved& saved) const;
  void backward_input(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  void backward_weight(const Pass& pass, const Saved& saved, const Gradients& gradients) const;

 private:
  /// Appends the pass's keys and values to its cache; attention then reads all keys of the cache.
  Saved remember(const Pass& pass, Saved saved) const;
  AttentionDropout dropout_of(const Pass& pass) const;
  /// The arguments of attention itself, for the forward and the backward pass.
  AttentionArgs arguments(const Pass& pass, const Saved& saved) const;
  Tensor scores_at_work(const Pass& pass, const AttentionShape& shape) const;
  /// The first position that each query may attend to: the start of its document.
  Tensor first_position(const Pass& pass) const {
    return context.local_queries(pass.batch.first_position);
  }
  Tensor real_queries(const Pass& pass) const {
    return context.local_queries(pass.batch.real_query);
  }
  bool exchanges_heads() const { return to_heads.group != nullptr; }
  /// Computes the gradients of q, k and v (after RoPE) from the gradient of the context.
  void backward_attend(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  /// Rotates or scales x in place by the rows of `table`; `back` applies the transpose.
  void turn(const Pass& pass, const Tensor& x, const Tensor& table, std::int64_t head_dim,
            bool back) const;
  void rope_both(const Pass& pass, const Tensor& of_q, const Tensor& of_k, std::int64_t head_dim,
                 bool back) const;
  /// The input of the output projection: the context, multiplied by the output gate if there is
  /// one.
  Tensor output_input(const Pass& pass, const Saved& saved) const;
  /// Takes one value for each head of this rank's projections. Returns the values of the heads that
  /// attention works on.
  Tensor sinks_at_work(const Tensor& made, const AttentionShape& shape) const {
    const std::int64_t first = first_head % made.numel();
    return made.slice(first, first + shape.heads);
  }
  void norm_forward(const Pass& pass, const Saved& saved) const;
  void norm_backward(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  /// The tensors of the q norm and the k norm.
  struct NormPair;
  NormPair norm_pair(const Pass& pass, const Saved& saved, const Tensor& dq,
                     const Tensor& dk) const;
  /// x with one row for each row that the q/k norm normalizes: a head, or a token with whole_norm.
  Tensor norm_rows(const Tensor& x, std::int64_t head_dim) const;
  void add_first_weights(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
};

/// Makes the attention of layer `layer` of the model.
Attention make_attention(const StageInput& input, std::int64_t layer);

}  // namespace trainctl
