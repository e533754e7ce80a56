// The router of a layer of experts: choices, gradients, losses and statistics.
#pragma once

#include <cstdint>

#include "base/kinds.h"
#include "base/token_layout.h"
#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

// The order of a router's rows: gathered from ranks, and in transit to experts.

/// Maps rows to tokens. Rows gathered from context-parallel ranks are ordered by rank, then by
/// sequence. By default rows are in the order of the data.
struct RowOrder {
  TokenPieces tokens{};        // seq_length is required with several ranks
  std::int64_t sequences = 1;  // per rank

  constexpr std::int64_t token_of(std::int64_t row) const {
    if (tokens.ranks == 1) return row;
    const std::int64_t part = tokens.rank_length();
    const std::int64_t piece = tokens.piece_length();
    const std::int64_t first = tokens.position(row / (sequences * part), row % part / piece);
    return row / part % sequences * tokens.seq_length + first + row % piece;
  }
  constexpr std::int64_t row_of(std::int64_t token) const {
    if (tokens.ranks == 1) return token;
    const std::int64_t piece = tokens.piece_length();
    const std::int64_t position = token % tokens.seq_length;
    const std::int64_t sequence =
        tokens.rank_with(position) * sequences + token / tokens.seq_length;
    return sequence * tokens.rank_length() + tokens.piece_with(position) * piece + token % piece;
  }
};

/// Whether routers count token number `token` of the data: all but padding. `marks` is null if
/// there is no padding.
constexpr bool is_counted(const std::uint8_t* marks, std::int64_t token) {
  return marks == nullptr || marks[token] != 0;
}

/// The place of row `row` of `expert` in the order of experts' rows in transit: by chunk, then by
/// expert. Of an expert's n rows (`counts`), chunk c has rows n c / chunks to n (c + 1) / chunks.
constexpr std::int64_t slot_of(const std::int64_t* counts, std::int64_t experts,
                               std::int64_t chunks, std::int64_t expert, std::int64_t row) {
  const std::int64_t chunk = ((row + 1) * chunks - 1) / counts[expert];
  const std::int64_t end = chunks > 1 ? experts : expert;
  std::int64_t slot = row;
  for (std::int64_t e = 0; e < end; ++e) {
    if (e != expert) slot += counts[e] * (chunk + (e < expert ? 1 : 0)) / chunks;
  }
  return slot;
}

// A router chooses experts and weights for each token, and has losses in addition to the main loss.
// T tokens, E experts, k experts chosen per token, G tokens in a routing group (neighbours in the
// order of the data). Per token lse = log sum exp(logits). Scores are p = softmax(logits), or s =
// sigmoid(logits). In the losses, p is the softmax, or for sigmoid s / sum of s.

// Choice of a token: the k largest logits, or for sigmoid the k largest s + bias, within the best
//   `group_topk` of n groups of neighbouring experts. A group ranks by the sum of its
//   k / group_topk best s + bias (DeepSeek-V3, section 2.1.2), or p or logits (Megatron). The
//   first of equal ones wins.
// Rounds (MindFormers' TopkRouter): round j chooses the largest p of the experts that have not
//   kept the token: m_te = 0 if expert e has, else 1. A full expert may be chosen again. If all
//   p m are 0 in fp32, expert 0 is chosen.
// Places: an expert accepts expert_places() choices per group of RouterCapacity, and drops
//   further ones.
// Weights: scaling times score over 1, the sum of the token's choices (sigmoid: + 1e-20), or 1e-9 +
//   the sum of its kept choices. A dropped choice has weight 0, and so has a repeated choice of
//   an expert that has the token already; the latter counts in no sum.
// Balance loss of a group (1 if even): E / (k G) sum over e of c_e mean over t of p_te, where c_e
//   is the number of the group's choices of expert e, even dropped ones (Fedus et al. 2021,
//   equation 4). With free_counts, c_e counts choices without bias and groups of experts. In
//   rounds: sum over rounds of E / G sum over e of c_je mean over t of p_te m_te / S_t,
//   S_t = 1e-9 + sum over e of p_te m_te. The counts c, and m, are constants.
// z-loss of a token: lse^2 (Zoph et al. 2022, equation 5)
// Tokens that are not real choose nothing and are in no count and loss; G and capacity groups count
// only real tokens. `real` is [tokens of all groups] u8 in the order of the data, 0 for tokens that
// are not real. If empty, all are real.

/// The rule by which experts are chosen and weighted, and choices counted.
struct RouterChoice {
  bool sigmoid = false;  // scores; else softmax
  ExpertWeights weighting = ExpertWeights::all;
  bool rounds = false;       // requires softmax, one group of experts and Overflow::position
  bool free_counts = false;  // not with rounds
  bool sums_logits = false;  // softmax: ranks groups of experts by logits instead of p
  float scaling = 1;
  std::int64_t groups = 1, group_topk = 1;  // `groups` divides E

  /// Rows of `choices` per routing group: one; with free_counts two, the actual and the free
  /// choices; or one per round.
  constexpr std::int64_t counted(std::int64_t topk) const {
    return rounds ? topk : free_counts ? 2 : 1;
  }
};

/// The limit of choices per expert.
struct RouterCapacity {
  std::int64_t group = 0;  // neighbouring tokens that share places; divides T
  double factor = 0;       // no limit if 0
  Overflow overflow = Overflow::position;
};

struct RouterForward {
  Tensor logits;  // [T, E] fp32
  Tensor real{};
  RowOrder order{};
  Tensor bias{};           // [E] fp32, for sigmoid; or empty
  std::int64_t group = 0;  // G, divides T
  RouterCapacity capacity{};
  RouterChoice choice{};
  Tensor chosen;  // [T, k] i32, largest first: the expert, or ~expert if it is full; ~0 if the
                  // token is not real
  Tensor weight;  // [T, k] fp32
  std::int64_t first = 0;   // first of `count` rows, the tokens of this rank
  std::int64_t count = 0;   // all rows if 0
  std::int64_t chunks = 1;  // of the rows in transit (slot_of)
  Tensor slot;     // [T, k] i32, for those rows: the choice's row among all their rows, ordered by
                   // expert, then by row; -1 if dropped
  Tensor choices;  // [T / G x counted, E] i32: c_e per group
  Tensor counts;   // [E] i64: rows per expert
};

/// The gradient of the logits through the weights of choices alone.
struct RouterBackward {
  Tensor logits, chosen;
  RouterChoice choice{};
  Tensor d_weight;  // [T, k] fp32; not read for dropped choices
  Tensor d_logits;  // [T, E] fp32, overwritten
};

/// d_logits += loss_scale x token_factor x the gradient of balance_factor x G x (balance losses) +
/// z_factor x (z-losses). With token_factor = 1 / (tokens of the global batch), this is the mean of
/// each loss over the batch.
struct RouterLosses {
  // [S, E] fp32, [S, k] i32: some rows of `choices`; for router_statistics all rows
  Tensor logits, chosen;
  Tensor real{};
  RowOrder order{};
  std::int64_t first = 0;  // index of the first of these rows
  std::int64_t group = 0;
  RouterChoice choice{};
  Tensor choices;
  float balance_factor = 0;
  float z_factor = 0;
  Tensor d_logits{};  // [S, E] fp32
  const StepState* state = nullptr;
  Tensor sums{};  // router_statistics adds to it: [router_sums + E] fp32
};

/// The sums that router_statistics adds for a layer, before the number of choices per expert:
enum class RouterSum { balance, z_loss, entropy, dropped };  // G x balance loss; lse^2; entropy;
inline constexpr std::int64_t router_sums = 4;               // dropped choices

void router_forward(const OpContext& context, const RouterForward& args);
void router_backward(const OpContext& context, const RouterBackward& args);
void router_losses(const OpContext& context, const RouterLosses& args);
void router_statistics(const OpContext& context, const RouterLosses& args);

/// The initial values of sums of chosen weights, and of p m or kept weights.
inline constexpr double min_chosen_sum = 1e-20;
inline constexpr double min_kept_sum = 1e-9;

}  // namespace trainctl
