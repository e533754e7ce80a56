// The rows of the activation table that a block with experts has instead of those of a plain MLP.
#pragma once

#include <string>
#include <vector>

#include "plan/model/activation_rows.h"

namespace trainctl {

/// Names (T tokens of a micro-batch after a gather over tp, S rows of the residual stream, H
/// hidden, E experts, k chosen for each token, P ranks along ep, F width of an expert over etp; N,
/// R and G are LocalShape::routed_rows, expert_rows and gathered_rows: how many rows are used
/// follows from what the router chooses, but there are never more; Q = P x ExchangeRule::parts):
///  forward, until B: layers.N.moe.logits [T,E] fp32, .chosen .slot [T,k] i32 (ops/router.h),
///         .choices [groups x counted,E] i32, .gate (gated) .up [R,F]
///  forward, until W: .rows [R,H] (the inputs of the experts held here, expert after expert, in
///         each in the order of the tokens of all ranks), .row_weight [R] fp32, .act [R,F] (before
///         the weight)
///  counted, until W: .counts [Q,E] i64 (rows that each rank sends to each expert); with Q > 1
///         .places [G] i32 (where received rows go) and .exchanged [2,P] i64 (elements to and from
///         each rank)
///  gradient, until W: .d_logits [S,E] fp32, .d_rows [R,H] (of what the experts give), .d_up,
///         .d_gate (gated) [R,F]
///  shared: moe.weight [T,k] fp32 (of each choice, and its gradient), moe.sent_counts [Q,E] i64
///         (where routers write what becomes .counts), moe.out [R,H] (what the experts give, and
///         the gradient of their inputs), moe.scaled [R,F] (act with its weight),
///         moe.d_row_weight [R] fp32
///  shared with Q > 1: moe.sent [N,H] and moe.sent_weight [N] fp32 (in the order of this rank's
///         slots), moe.received [G,H] and moe.received_weight [G] fp32 (from rank after rank),
///         moe.place [G] i32 (.places of the layer at work); with ExchangeRule::beside_passes these
///         are layers.N.moe.* of R and B and first.layers.N.moe.* of F, as long as the pass is open
///  shared with fp32_sums and parts: moe.sum [G,H] fp32
///  shared with C context-parallel ranks, of all their tokens: moe.all_logits [C T,E] fp32,
///         moe.all_chosen moe.all_slot [C T,k] i32, moe.all_weight [C T,k] fp32; groups above are
///         those of all these tokens
///  shared with sequence parallelism: moe.all_d_logits [T,E] fp32; in 16 bits: moe.wide [S,H] fp32,
///         moe.narrow [S,H] (the router's input, and the gradient of it)
///  shared experts, of width V over tp: until B .shared.gate (gated) .up [T,V]; until W .shared.act
///         [T,V], .shared.d_up .d_gate (gated) [T,V]; with their gate until W .shared.logit [T,1]
///         fp32 and .shared.d_logit [S,1] fp32, shared moe.shared_scaled [T,V], with sequence
///         parallelism moe.shared_all_d_logit [T,1] fp32
void add_expert_rows(Rows& rows, const StageShare& share, const std::string& moe);
void add_expert_scratch(Rows& rows, const StageShare& share);

/// How many blocks of these units have experts.
std::int64_t count_expert_blocks(const ModelShape& model, const std::vector<UnitRange>& units);

}  // namespace trainctl
