// Attention with its projections: what it keeps, multiplies and exchanges.
#pragma once

#include "plan/model/declaration.h"
#include "plan/model/form.h"

namespace trainctl {

/// T tokens of which the rank makes q, k and v, Q and K features of queries and keys; attention
/// itself works on the A tokens of all ranks that exchange heads, of a part of the features each.
/// (A rank holds its share: T is divided by cp, with sequence parallelism the residual stream's
/// rows S are T / tp; by features Q, K and the heads are divided by tp.) What layers with the same
/// input write, and the gradients of that, lie in the order in which buckets have the layers'
/// parameters, from the last to the first: equally far apart, they are one batch of products
/// (ops/matmul.h).
template <class T>
struct AttentionRows {
  T gathered{};          // [T, H] the input as every rank needs it, where R would gather it again
  T v{}, k{}, q{};       // [A, K], [A, K], [A, Q] after bias, q/k norm, RoPE and temperature
  T gate{};              // [T, Q] of the output gate, before its sigmoid
  T k_raw{}, q_raw{};    // [T, K], [T, Q] before the q/k norm; only with one
  T q_rstd{}, k_rstd{};  // [T heads], [T heads of keys] fp32, of that norm
  T attended{};          // [A, Q] where heads are exchanged: the result before it is given back
  T context{};           // [T, Q]
  T logsumexp{};         // [T heads] fp32

  static void visit(const auto& visit, auto&... rows) {
    visit("gathered", rows.gathered...);
    visit("v", rows.v...);
    visit("k", rows.k...);
    visit("q", rows.q...);
    visit("gate", rows.gate...);
    visit("k_raw", rows.k_raw...);
    visit("q_raw", rows.q_raw...);
    visit("q_rstd", rows.q_rstd...);
    visit("k_rstd", rows.k_rstd...);
    visit("attended", rows.attended...);
    visit("context", rows.context...);
    visit("logsumexp", rows.logsumexp...);
  }
};
AttentionRows<RowSpec> attention_rows(const LayerForm& form, const LayerShare& share,
                                      const BlockForm& kept);

/// The gradients of the rows that attention's products write: v, k and q [T, K], [T, K], [T, Q],
/// and gate.
AttentionRows<RowSpec> attention_gradients(const LayerForm& form, const LayerShare& share);

/// Shared by all layers of a rank: each row as large as the layer that needs most of it.
template <class T>
struct AttentionScratch {
  T d_context{};                      // [T, Q]
  T gated{};                          // [T, Q] the context times its gate's sigmoid
  T norm_sums{};                      // [2, T] fp32 of the q/k norm, where ranks divide its heads
  T k{}, v{}, d_k{}, d_v{};           // over cp: keys of all ranks [g A, K]; of a ring two ranks'
  T part_q{}, part_k{}, part_v{};     // [A, Q], [A, K] in a ring: what the keys of one rank give
  T part_logsumexp{};                 // [A heads] fp32
  T local_v{}, local_k{}, local_q{};  // [T, K], [T, Q] before heads are exchanged; in B gradients
  T d_attended{};                     // [A, Q]
  T packed{};                         // [T, Q] or, gathered, that of all ranks: on its way

  static void visit(const auto& visit, auto&... rows) {
    visit("d_context", rows.d_context...);
    visit("gated", rows.gated...);
    visit("norm_sums", rows.norm_sums...);
    visit("cp.k", rows.k...);
    visit("cp.v", rows.v...);
    visit("cp.d_k", rows.d_k...);
    visit("cp.d_v", rows.d_v...);
    visit("cp.part_q", rows.part_q...);
    visit("cp.part_k", rows.part_k...);
    visit("cp.part_v", rows.part_v...);
    visit("cp.part_logsumexp", rows.part_logsumexp...);
    visit("heads.own_v", rows.local_v...);
    visit("heads.own_k", rows.local_k...);
    visit("heads.own_q", rows.local_q...);
    visit("heads.d_attended", rows.d_attended...);
    visit("heads.packed", rows.packed...);
  }
};
AttentionScratch<RowSpec> attention_scratch(const LayerForm& form, const LayerShare& share);

/// Queries, keys and values, attention itself, and the projection to the residual stream.
Products attention_products(const LayerForm& form, const LocalShape& local);

/// Between the residual stream and the projections.
Exchanges attention_exchanges(const LayerForm& form, const LayerShare& share);
/// Over tp, where attention is split by tokens: queries, keys and values as tokens become heads,
/// the result is given back, and the duals of both in B.
LayerCalls attention_head_calls(const LayerShare& share);
/// Over tp, where ranks divide the heads that a q/k norm is over: the sums of their parts of each
/// row, of queries and of keys.
LayerCalls attention_norm_calls(const LayerForm& form, const LayerShare& share);
/// Over cp: the same as of heads, keys and values around a ring, or gathered (ContextSplit).
LayerCalls attention_context_calls(const LayerShare& share);

}  // namespace trainctl
