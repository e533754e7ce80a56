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
  Linear gate;  // of the output; empty without
  GatheredProducts enter;
  Reshard leave;
  // Over context-parallel ranks, or where attention is split by tokens over tensor-parallel ones;
  // without a group: nothing to move.
  Reshard to_heads, from_heads;
  SplitBy split = SplitBy::features;
  ContextParallel context{};
  SharedKeys shared_keys;
  Norm q_norm, k_norm;          // empty without q/k norm
  Group* norm_group = nullptr;  // of ranks that divide the heads that norms are over
  bool whole_norm = false;      // over all heads at once
  bool norm_after_rope = false;
  Tensor rope_table;         // [positions, RopeForm::size] fp32; empty without RoPE
  bool adjacent = false;     // RopeForm::interleaved
  Tensor temperature_table;  // [positions, head_dim] fp32 of the queries; empty without
  Weight sinks;              // [heads of the rank's products] fp32; empty without
  float dropout = 0;         // of the probabilities
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
    Tensor norm_sums;       // [2, T] fp32 temporary; empty unless ranks divide the norms' rows
    Tensor q, k, v;         // [T, features]
    Tensor queries;         // [Q, features]
    Tensor keys, values;    // [K, features]
    Tensor attended;        // [Q, features]
    Tensor context;         // [T, heads * head_dim]
    Tensor gate;            // as context; empty without an output gate
    Tensor gated;           // temporary, as context: what the output projection reads
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
  /// Both passes take them.
  AttentionArgs arguments(const Pass& pass, const Saved& saved) const;
  Tensor scores_at_work(const Pass& pass, const AttentionShape& shape) const;
  /// Where each query's document begins.
  Tensor first_position(const Pass& pass) const {
    return context.local_queries(pass.batch.first_position);
  }
  Tensor real_queries(const Pass& pass) const {
    return context.local_queries(pass.batch.real_query);
  }
  bool exchanges_heads() const { return to_heads.group != nullptr; }
  /// From the gradient of the context to those of q, k and v after RoPE.
  void backward_attend(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  /// Turns x in place by the rows of a table, or back.
  void turn(const Pass& pass, const Tensor& x, const Tensor& table, std::int64_t head_dim,
            bool back) const;
  void rope_both(const Pass& pass, const Tensor& of_q, const Tensor& of_k, std::int64_t head_dim,
                 bool back) const;
  /// The context, or what the output gate makes of it.
  Tensor output_input(const Pass& pass, const Saved& saved) const;
  /// The part of `made`, a value for each head of the rank's products, for the heads that attention
  /// works on.
  Tensor sinks_at_work(const Tensor& made, const AttentionShape& shape) const {
    const std::int64_t first = first_head % made.numel();
    return made.slice(first, first + shape.heads);
  }
  void norm_forward(const Pass& pass, const Saved& saved) const;
  void norm_backward(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  /// The tensors of both norms, and the sums that ranks share of `dq` and `dk`, their gradients.
  struct NormPair;
  NormPair norm_pair(const Pass& pass, const Saved& saved, const Tensor& dq,
                     const Tensor& dk) const;
  /// Rows that the q/k norm is over: of heads, or of tokens.
  Tensor norm_rows(const Tensor& x, std::int64_t head_dim) const;
  void add_first_weights(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
};

/// For layer `layer` of the model.
Attention make_attention(const StageInput& input, std::int64_t layer);

}  // namespace trainctl
