// Layers of experts: the router, the experts that tokens choose, and the shared ones; what they
// keep, multiply and exchange.
#pragma once

#include "plan/model/declaration.h"
#include "plan/model/form.h"
#include "plan/model/mlp.h"

namespace trainctl {

/// The rows that routed experts keep. T tokens whose experts this rank uses, S of its residual
/// stream, E experts, k of them chosen for each token; R rows at most that come to the experts held
/// here, F their width on this rank; Q ranks that send to each expert, P of them along ep; G rows
/// that they send at most. How many rows are used follows from what the router chooses.
template <class T>
struct ExpertRows {
  T logits{};                // [T, E] fp32
  T chosen{}, slot{};        // [T, k] i32 (ops/router.h)
  T choices{};               // [LocalShape::counted_rows, E] i32
  T rows{};                  // [R, H] inputs of the experts, expert after expert, in each in the
                             // order of the tokens of all ranks
  T row_weight{};            // [R] fp32
  FeedForwardRows<T> mlp{};  // [R, F]; act before the weight
  T counts{};                // [Q, E] i64, host: rows that each rank sends to each expert
  T places{};                // [G] i32, host, Q > 1: where received rows go
  T exchanged{};             // [2, P] i64, host, Q > 1: elements to and from each rank

  static void visit(const auto& visit, auto&... all) {
    visit("logits", all.logits...);
    visit("chosen", all.chosen...);
    visit("slot", all.slot...);
    visit("choices", all.choices...);
    visit("rows", all.rows...);
    visit("row_weight", all.row_weight...);
    FeedForwardRows<T>::visit(visit, all.mlp...);
    visit("counts", all.counts...);
    visit("places", all.places...);
    visit("exchanged", all.exchanged...);
  }
};
ExpertRows<RowSpec> expert_rows(const LayerForm& form, const LayerShare& share);

/// Rows on their way between the ranks of experts, Q > 1: shared by all passes or, with
/// ExchangeRule::beside_passes, of one pass as long as that is open. N choices of this rank's
/// tokens at most.
template <class T>
struct ExpertTransit {
  T sent{}, sent_weight{};          // [N, H], [N] fp32 in the order of the slots
  T received{}, received_weight{};  // [G, H], [G] fp32 from rank after rank
  T place{};                        // [G] i32: `places` of the layer at work

  static void visit(const auto& visit, auto&... all) {
    visit("sent", all.sent...);
    visit("sent_weight", all.sent_weight...);
    visit("received", all.received...);
    visit("received_weight", all.received_weight...);
    visit("place", all.place...);
  }
};
/// The rows of a layer with passes in legs; empty otherwise.
ExpertTransit<RowSpec> expert_transit(const LayerForm& form, const LayerShare& share);

/// The gradients of the logits, [S, E] of the residual stream's rows, of what the experts give
/// (`rows`), and of the products before the activation function.
ExpertRows<RowSpec> expert_gradients(const LayerForm& form, const LayerShare& share);

/// Shared experts: all tokens of the micro-batch on this rank, V features over tp. Empty without
/// them.
FeedForwardRows<RowSpec> shared_expert_rows(const LayerForm& form, const LayerShare& share);
FeedForwardRows<RowSpec> shared_expert_gradients(const LayerForm& form, const LayerShare& share);
/// The logit of their gate, [T, 1] fp32, and its gradient, [S, 1] fp32; empty without one.
RowSpec shared_gate_logit(const LayerForm& form, const LayerShare& share);
RowSpec shared_gate_gradient(const LayerForm& form, const LayerShare& share);

/// Used by all layers of experts of a rank, one after the other.
template <class T>
struct ExpertScratch {
  T weight{};         // [T, k] fp32 of each choice, and its gradient
  T sent_counts{};    // [Q, E] i64, where routers write what becomes `counts`
  T out{};            // [R, H] what the experts give, and the gradient of their inputs
  T scaled{};         // [R, F] act with its weight
  T d_row_weight{};   // [R] fp32
  T shared_scaled{};  // [T, V] with the gate of shared experts
  // These have all tokens that are routed together, where several ranks route them.
  T all_logits{}, all_chosen{}, all_weight{}, all_slot{};
  ExpertTransit<T> transit{};
  T sum{};                 // [G, H] fp32: what parts of experts add up, with fp32_sums
  T all_d_logits{};        // [T, E] fp32 with sequence parallelism, where all tokens are routed
  T shared_y{};            // [S, H] where shared experts alone need all tokens
  T shared_all_d_logit{};  // [T, 1] fp32
  T wide{}, narrow{};      // [S, H] fp32 and compute type: the router's input and its gradient

  static void visit(const auto& visit, auto&... all) {
    visit("weight", all.weight...);
    visit("sent_counts", all.sent_counts...);
    visit("out", all.out...);
    visit("scaled", all.scaled...);
    visit("d_row_weight", all.d_row_weight...);
    visit("shared_scaled", all.shared_scaled...);
    visit("all_logits", all.all_logits...);
    visit("all_chosen", all.all_chosen...);
    visit("all_weight", all.all_weight...);
    visit("all_slot", all.all_slot...);
    ExpertTransit<T>::visit(visit, all.transit...);
    visit("sum", all.sum...);
    visit("all_d_logits", all.all_d_logits...);
    visit("shared_y", all.shared_y...);
    visit("shared_all_d_logit", all.shared_all_d_logit...);
    visit("wide", all.wide...);
    visit("narrow", all.narrow...);
  }
};
ExpertScratch<RowSpec> expert_scratch(const LayerForm& form, const LayerShare& share);

/// The logits of the router, and the gate of shared experts.
Products router_products(const LayerForm& form, const LocalShape& local);

/// The products of the experts of a rank, if all experts are chosen equally often: a copy of each
/// token for each choice, and the products of these.
Products routed_products(const LayerForm& form, const LocalShape& local);

/// The products of the shared experts; none where there are none.
Products shared_products(const LayerForm& form, const LocalShape& local);

/// Between the residual stream and experts that need all tokens.
Exchanges expert_exchanges(const LayerForm& form, const LayerShare& share);
/// Every rank needs what the router, and the gate of shared experts, make of the tokens of each
/// rank.
Exchanges router_exchanges(const LayerForm& form, const LayerShare& share);
/// The scores of the tokens that are routed together, and how many rows each expert gets.
LayerCalls router_calls(const LayerForm& form, const LayerShare& share);
/// Rows with their weights, and the gradients of both, in the order in which they travel: there and
/// back in F, there and back in B. Between parts of the same experts, each with room for the rows
/// of all of them; and between ranks with other experts.
LayerCalls expert_part_calls(const LayerForm& form, const LayerShare& share);
LayerCalls expert_row_calls(const LayerForm& form, const LayerShare& share);

}  // namespace trainctl
