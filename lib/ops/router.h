// The router of a layer of experts: its choice, its gradients, its losses and its statistics.
#pragma once

#include <cstdint>

#include "base/token_layout.h"
#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

// Where the rows of a router lie: those of gathered ranks, and those on their way to experts.

/// Which token a row is. Rows that context-parallel ranks have gathered lie rank after rank, and
/// each rank's sequence after sequence. By default rows lie in the order of the data.
struct RowOrder {
  TokenPieces tokens{};        // seq_length is needed with several ranks
  std::int64_t sequences = 1;  // of each rank

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
    const TokenPieces::Piece held = tokens.piece_with(token % tokens.seq_length);
    const std::int64_t sequence = held.rank * sequences + token / tokens.seq_length;
    return sequence * tokens.rank_length() + held.number * piece + token % piece;
  }
};

/// Whether routers count a token, by its number in the order of the data: all but padding. `marks`
/// are null where there is none.
constexpr bool is_counted(const std::uint8_t* marks, std::int64_t token) {
  return marks == nullptr || marks[token] != 0;
}

/// In which order the rows of the experts lie on their way: of an expert's n rows chunk c has those
/// from n c / chunks to n (c + 1) / chunks; chunk after chunk, in each expert after expert.
struct RowChunking {
  const std::int64_t* counts = nullptr;  // rows of each expert
  std::int64_t experts = 0;
  std::int64_t chunks = 1;

  /// Where row `row` of `expert` lies.
  constexpr std::int64_t slot_of(std::int64_t expert, std::int64_t row) const {
    const std::int64_t chunk = ((row + 1) * chunks - 1) / counts[expert];
    const std::int64_t end = chunks > 1 ? experts : expert;
    std::int64_t slot = row;
    for (std::int64_t e = 0; e < end; ++e) {
      if (e != expert) slot += counts[e] * (chunk + (e < expert ? 1 : 0)) / chunks;
    }
    return slot;
  }
};

// The router of a layer of experts: which experts a token goes to and with what weight, and the
// losses in addition to the main one. T tokens, E experts, k chosen for each token, G tokens of a
// routing group (neighbours in the order of the data). Per token lse = log sum exp(logits); its
// scores are p = softmax(logits), or s = sigmoid(logits) of each by itself. p of the losses is the
// softmax, or with sigmoid s / sum of s.

// The choice of a token: the k largest logits, or with sigmoid the k largest s + bias, of the best
//   `group_topk` of n groups of neighbouring experts: those with the largest sums of their
//   k / group_topk best s + bias (DeepSeek-V3, section 2.1.2), or p or logits (Megatron). Of equal
//   ones the first.
// In rounds (MindFormers' TopkRouter): round j chooses the largest p that the token has not been
//   kept for, m_te = 0 where it has, else 1; an expert that was full may be chosen again. If all
//   p m are 0 in fp32, it is expert 0.
// Places: an expert takes expert_places() choices of a group of RouterCapacity; what finds no place
//   is dropped.
// Weights: scaling times score over 1, the sum of the token's choices (sigmoid: + 1e-20), or 1e-9 +
//   the sum of those that are kept. A choice that is dropped, or that names an expert which the
//   token has already, has weight 0, and the second counts in no sum.
// Balance loss of a group (1 if even): E / (k G) sum over e of c_e mean over t of p_te, c_e of the
//   group's choices being of expert e, dropped ones too (Fedus et al. 2021, equation 4). With
//   free_counts c_e counts what would be chosen without bias and groups of experts. In rounds it is
//   the sum over them of E / G sum over e of c_je mean over t of p_te m_te / S_t, with
//   S_t = 1e-9 + sum over e of p_te m_te; what c counts and m are constants.
// z-loss of a token: lse^2 (Zoph et al. 2022, equation 5)
// Tokens that are not real choose nothing and are in no count and loss: G and the tokens that share
// places are the real ones of a group. `real` is [tokens of all groups] u8 in the order of the
// data, 0 where a token is not; empty: all are.

/// The divisor of the score of a choice for its weight: 1, or a sum.
enum class RouterWeighting { all, chosen, kept };
/// Who finds a place: first choices before second ones, then earlier tokens; those with the largest
/// weights (`kept`: scores), of equal ones the earlier token; or earlier tokens, of each the first
/// choice before the second.
enum class RouterOverflow { position, probability, token };

/// How experts are chosen and weighted, and what is counted of it.
struct RouterChoice {
  bool sigmoid = false;  // scores; else softmax
  RouterWeighting weighting = RouterWeighting::all;
  bool rounds = false;       // with softmax, one group of experts and RouterOverflow::position
  bool free_counts = false;  // not with rounds
  bool sums_logits = false;  // with softmax: groups of experts are compared by logits, not by p
  float scaling = 1;
  std::int64_t groups = 1, group_topk = 1;  // groups divides E

  /// Rows of `choices` for each routing group: one, with free_counts first what is chosen and then
  /// what would be, or one for each round.
  constexpr std::int64_t counted(std::int64_t topk) const {
    return rounds ? topk : free_counts ? 2 : 1;
  }
};

/// The limit of each expert.
struct RouterCapacity {
  std::int64_t group = 0;  // tokens (neighbours) that share its places; divides T
  double factor = 0;       // 0: no limit
  RouterOverflow overflow = RouterOverflow::position;
};

struct RouterForward {
  Tensor logits;  // [T, E] fp32
  Tensor real{};
  RowOrder order{};
  Tensor bias{};           // [E] fp32, with sigmoid; or empty
  std::int64_t group = 0;  // G, divides T
  RouterCapacity capacity{};
  RouterChoice choice{};
  Tensor chosen;  // [T, k] i32, the largest first: the expert, or ~expert where it is full;
                  // ~0 of a token that is not real
  Tensor weight;  // [T, k] fp32
  std::int64_t first = 0;   // with `count` rows from it on: the tokens of this rank
  std::int64_t count = 0;   // 0: all
  std::int64_t chunks = 1;  // RowChunking of their slots
  Tensor slot;     // [T, k] i32, of those rows: the row of the choice among theirs for all experts:
                   // expert after expert, in each in the order of the rows; -1 where it is dropped
  Tensor choices;  // [T / G x counted, E] i32: c_e of each group
  Tensor counts;   // [E] i64: rows of each expert
};

/// The gradient of the logits through the weights alone.
struct RouterBackward {
  Tensor logits, chosen;
  RouterChoice choice{};
  Tensor d_weight;  // [T, k] fp32; of dropped choices it is not read
  Tensor d_logits;  // [T, E] fp32, overwritten
};

/// d_logits += loss_scale x token_factor x the gradient of balance_factor x G x (balance losses)
/// + z_factor x (z-losses). With token_factor = 1 / (tokens of the global batch) that is the mean
/// of each over the batch.
struct RouterLosses {
  // [S, E] fp32, [S, k] i32: some of the rows of `choices`; of router_statistics all
  Tensor logits, chosen;
  Tensor real{};
  RowOrder order{};
  std::int64_t first = 0;  // the first of them
  std::int64_t group = 0;
  RouterChoice choice{};
  Tensor choices;
  float balance_factor = 0;
  float z_factor = 0;
  Tensor d_logits{};  // [S, E] fp32
  const StepState* state = nullptr;
  Tensor sums{};  // of router_statistics: [router_sums + E] fp32, added to
};

/// The sums of router_statistics for a layer, before the number of choices of each expert.
enum class RouterSum { balance, z_loss, entropy, dropped };  // G x balance loss; lse^2; that of p;
inline constexpr std::int64_t router_sums = 4;               // choices that were dropped

void router_forward(const OpContext& context, const RouterForward& args);
void router_backward(const OpContext& context, const RouterBackward& args);
void router_losses(const OpContext& context, const RouterLosses& args);
void router_statistics(const OpContext& context, const RouterLosses& args);

/// Where sums of weights and of p m begin.
inline constexpr double min_chosen_sum = 1e-20;
inline constexpr double min_kept_sum = 1e-9;

}  // namespace trainctl
