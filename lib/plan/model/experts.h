// Layers of experts (the router, the routed and the shared experts): their activations, products
// and exchanges.
#pragma once

#include "plan/model/declaration.h"
#include "plan/model/form.h"
#include "plan/model/mlp.h"

namespace trainctl {

/// Activations of routed experts. T: tokens that this rank routes; E: experts, k per token; R:
/// upper bound of rows for the experts of this rank, H wide outside and F inside; Q: ranks that
/// send to each expert, P along ep; G: upper bound of rows that they send. The number of rows in
/// use depends on the router's choices.
template <class T>
struct ExpertRows {
  T logits{};                // [T, E] fp32
  T chosen{}, slot{};        // [T, k] i32 experts and slots of choices (ops/router.h)
  T choices{};               // [LocalShape::counted_rows, E] i32 counts of choices
  T rows{};                  // [R, H] inputs of the experts, expert after expert; within one in the
                             // order of the tokens of all ranks
  T row_weight{};            // [R] fp32 weights of the rows
  FeedForwardRows<T> mlp{};  // [R, F]; act without the row's weight
  T counts{};                // [Q, E] i64, host: rows that each rank sends to each expert
  T places{};                // [G] i32, host, Q > 1: indices of received rows in `rows`
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

/// Rows that are sent between ranks of experts. All passes share them, or, with
/// ExchangeRule::beside_passes, each pass has its own. N: upper bound of the choices of this rank's
/// tokens; G: of the rows that this rank receives; H: features.
template <class T>
struct ExpertTransit {
  T sent{}, sent_weight{};          // [N, H], [N] fp32, in the order of `slot`
  T received{}, received_weight{};  // [G, H], [G] fp32, rank after rank
  T place{};                        // [G] i32: `places` of the layer that runs

  static void visit(const auto& visit, auto&... all) {
    visit("sent", all.sent...);
    visit("sent_weight", all.sent_weight...);
    visit("received", all.received...);
    visit("received_weight", all.received_weight...);
    visit("place", all.place...);
  }
};
/// The rows of a layer if passes of two micro-batches overlap, else empty.
ExpertTransit<RowSpec> expert_transit(const LayerForm& form, const LayerShare& share);

/// The gradients of the logits [S, E], S rows of the residual stream; of the experts' results
/// (`rows`); and of the products before the activation function.
ExpertRows<RowSpec> expert_gradients(const LayerForm& form, const LayerShare& share);

/// Rows of shared experts: all tokens of the micro-batch on this rank, V features over tp. Empty
/// without shared experts.
FeedForwardRows<RowSpec> shared_expert_rows(const LayerForm& form, const LayerShare& share);
FeedForwardRows<RowSpec> shared_expert_gradients(const LayerForm& form, const LayerShare& share);
/// The shared experts' gate: its logit [T, 1] and gradient [S, 1], fp32; empty without a gate.
RowSpec shared_gate_logit(const LayerForm& form, const LayerShare& share);
RowSpec shared_gate_gradient(const LayerForm& form, const LayerShare& share);

/// Scratch shared by all layers of experts of a rank. Letters as in ExpertRows; S: tokens of the
/// residual stream; V: features of shared experts on this rank.
template <class T>
struct ExpertScratch {
  T weight{};         // [T, k] fp32 weights of the choices, and their gradients
  T sent_counts{};    // [Q, E] i64, on the device: written by routers, copied to `counts`
  T out{};            // [R, H] outputs of the experts; gradients of their inputs
  T scaled{};         // [R, F] act times the row's weight
  T d_row_weight{};   // [R] fp32 weights of the rows
  T shared_scaled{};  // [T, V] act of shared experts times their gate
  // All tokens that several ranks route together; empty if each rank routes alone.
  T all_logits{}, all_chosen{}, all_weight{}, all_slot{};
  ExpertTransit<T> transit{};
  T sum{};                 // [G, H] fp32, with fp32_sums: summands of expert shards
  T all_d_logits{};        // [T, E] fp32, with sequence parallelism if all tokens are routed
  T shared_y{};            // [S, H], if only shared experts need all tokens
  T shared_all_d_logit{};  // [T, 1] fp32
  T wide{}, narrow{};      // [S, H] fp32 and compute type: router's input and its gradient

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

/// The products for the logits of the router and of the gate of shared experts.
Products router_products(const LayerForm& form, const LocalShape& local);

/// The products of a rank's routed experts if all experts are chosen equally often: a copy of each
/// token for each choice, and the experts' products for these copies.
Products routed_products(const LayerForm& form, const LocalShape& local);

/// The products of the shared experts; empty without shared experts.
Products shared_products(const LayerForm& form, const LocalShape& local);

/// Exchanges between the residual stream and experts that need all tokens.
Exchanges expert_exchanges(const LayerForm& form, const LayerShare& share);
/// All-gathers, so that every rank has the logits of the router and of the shared gate for all
/// tokens.
Exchanges router_exchanges(const LayerForm& form, const LayerShare& share);
/// Calls for the scores of tokens that are routed together, and for the row counts of each expert.
LayerCalls router_calls(const LayerForm& form, const LayerShare& share);
/// Calls for rows of tokens, their weights and the gradients of both, in execution order: to the
/// experts and back in F, to the experts and back in B. expert_part_calls() are between ranks with
/// shards of the same experts, each with space for the rows of all; expert_row_calls() between
/// ranks with different experts.
LayerCalls expert_part_calls(const LayerForm& form, const LayerShare& share);
LayerCalls expert_row_calls(const LayerForm& form, const LayerShare& share);

}  // namespace trainctl
