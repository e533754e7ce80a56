// Attention with its projections: its activations, products and exchanges.
#pragma once

#include "plan/model/declaration.h"
#include "plan/model/form.h"

namespace trainctl {

/// Activations of attention. T: tokens for which the rank computes q, k and v; Q, K: features of
/// queries and keys; A: tokens of all ranks that exchange heads, on which attention works with a
/// part of the features. (T is a rank's share: divided by cp, and with sequence parallelism the
/// residual stream has S = T / tp rows; split by features, Q, K and the heads are divided by tp.)
/// v, k, q and their gradients are in the order of the layers' parameters in buckets, last layer
/// first: at equal distances, products with the same input form one batch (ops/matmul.h).
template <class T>
struct AttentionRows {
  T gathered{};          // [T, H] gathered input, if F keeps it for W
  T v{}, k{}, q{};       // [A, K], [A, K], [A, Q] after bias, q/k norm, RoPE and temperature
  T gate{};              // [T, Q] output gate, before its sigmoid
  T k_raw{}, q_raw{};    // [T, K], [T, Q] before the q/k norm; only with q/k norm
  T q_rstd{}, k_rstd{};  // [T heads], [T heads of keys] fp32, statistics of the q/k norm
  T attended{};          // [A, Q] if heads are exchanged: result before it is returned
  T context{};           // [T, Q] gradient of `context`
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

/// The gradients of q [T, Q], k and v [T, K], and gate, the rows that attention's products write.
AttentionRows<RowSpec> attention_gradients(const LayerForm& form, const LayerShare& share);

/// Scratch shared by all layers of a rank: each row has the size of the layer that needs most. T,
/// Q, K, A: see AttentionRows.
template <class T>
struct AttentionScratch {
  T d_context{};                      // [T, Q] gradient of `context`
  T gated{};                          // [T, Q] context times the sigmoid of the gate
  T norm_sums{};                      // [2, T] fp32 sums of a q/k norm over heads of several ranks
  T k{}, v{}, d_k{}, d_v{};           // keys of all cp ranks [g A, K]; in a ring, of two ranks
  T part_q{}, part_k{}, part_v{};     // [A, Q], [A, K] in a ring: results from one rank's keys
  T part_logsumexp{};                 // [A heads] fp32, of part_q
  T local_v{}, local_k{}, local_q{};  // [T, K], [T, Q] before the exchange of heads; gradients in B
  T d_attended{};                     // [A, Q] gradient of `attended`
  T packed{};                         // [T, Q], or gathered from all ranks: heads being exchanged

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

/// The projections to queries, keys and values, attention itself, and the output projection.
Products attention_products(const LayerForm& form, const LocalShape& local);

/// Exchanges between the residual stream and the projections.
Exchanges attention_exchanges(const LayerForm& form, const LayerShare& share);
/// Calls over tp if attention is split by tokens: queries, keys and values change from tokens to
/// heads, the result changes back; the dual calls in B.
LayerCalls attention_head_calls(const LayerShare& share);
/// All-reduces over tp if a q/k norm spans heads of several ranks: the partial sums of each row of
/// queries and of keys.
LayerCalls attention_norm_calls(const LayerForm& form, const LayerShare& share);
/// Calls over cp: heads are exchanged, keys and values passed around a ring or gathered
/// (ContextSplit).
LayerCalls attention_context_calls(const LayerShare& share);

}  // namespace trainctl
