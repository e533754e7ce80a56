// The router of a layer of experts: which experts a token goes to and with what weight, and the
// losses beside the main one. T tokens, E experts, k chosen for each token, G tokens of a routing
// group (neighbours in the order of the data). Per token p = softmax(logits), lse = log sum
// exp(logits), or with sigmoid scores p = s / sum of s, s = sigmoid(logits).
#pragma once

#include "base/token_layout.h"
#include "device/tensor.h"
#include "ops/context.h"
#include "ops/step_state.h"

namespace trainctl {

//   forward: the k largest logits, or with sigmoid the k largest s + bias, of the best `group_topk`
//     of n groups of neighbouring experts: those with the largest sums of their k / group_topk best
//     s + bias (DeepSeek-V3, section 2.1.2), p with softmax_all, or logits with softmax_chosen
//     (Megatron). Of equal ones the first. Weights: RouterScore, times
//     `scaling`. With a capacity an expert takes no more tokens of a group; `by_probability` says
//     which (Overflow of the configuration).
//   balance loss of a group: E / (k G) sum over e of c_e mean over t of p_te, c_e of the group's
//     choices being of expert e, dropped ones included (Fedus et al. 2021, equation 4; 1 if even)
//   z-loss of a token: lse^2 (Zoph et al. 2022, equation 5)

/// What the weight of a chosen expert is.
enum class RouterScore {
  softmax_all,     // p
  softmax_chosen,  // the softmax over the logits of the chosen
  sigmoid,         // s over the sum of the chosen; with k = 1 s itself
};

/// How experts are chosen and weighted.
struct RouterChoice {
  RouterScore score = RouterScore::softmax_all;
  float scaling = 1;
  std::int64_t groups = 1, group_topk = 1;  // groups divides E
};

/// Which token a row is. Rows that context-parallel ranks have gathered lie rank after rank, and
/// each rank's sequence after sequence. By default rows lie in the order of the data.
struct RowOrder {
  TokenLayout tokens{};        // seq_length is needed with several ranks
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
    const TokenLayout::Piece held = tokens.piece_with(token % tokens.seq_length);
    const std::int64_t sequence = held.rank * sequences + token / tokens.seq_length;
    return sequence * tokens.rank_length() + held.number * piece + token % piece;
  }
};

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

struct RouterForward {
  Tensor logits;  // [T, E] fp32
  RowOrder order{};
  Tensor bias{};              // [E] fp32, with sigmoid; or empty
  std::int64_t group = 0;     // G, divides T
  std::int64_t capacity = 0;  // 0: none
  bool by_probability = false;
  RouterChoice choice{};
  Tensor chosen;           // [T, k] i32, the largest first: the expert, or ~expert where it is full
  Tensor weight;           // [T, k] fp32
  std::int64_t first = 0;  // with `count` rows from it on: the tokens of this rank
  std::int64_t count = 0;  // 0: all
  std::int64_t chunks = 1;  // RowChunking of their slots
  Tensor slot;     // [T, k] i32, of those rows: the row of the choice among theirs for all experts:
                   // expert after expert, in each in the order of the rows; -1 where it is full
  Tensor choices;  // [T / G, E] i32: c_e of each group
  Tensor counts;   // [E] i64: rows of each expert
};

/// Of the weights alone.
struct RouterBackward {
  Tensor logits, chosen;
  RouterChoice choice{};
  Tensor d_weight;  // [T, k] fp32
  Tensor d_logits;  // [T, E] fp32, overwritten
};

/// d_logits += loss_scale x token_factor x the gradient of balance_factor x G x (balance losses)
/// + z_factor x (z-losses). With token_factor = 1 / (tokens of the global batch) that is the mean
/// of each over the batch.
struct RouterLosses {
  Tensor logits;  // [S, E] fp32: some of the rows of `choices`
  RowOrder order{};
  std::int64_t first = 0;  // the first of them
  std::int64_t group = 0;
  std::int64_t topk = 1;
  RouterScore score = RouterScore::softmax_all;
  Tensor choices;
  float balance_factor = 0;
  float z_factor = 0;
  Tensor d_logits;  // [S, E] fp32
  const StepState* state = nullptr;
};

/// What router_statistics adds up for a layer, before the number of choices of each expert.
enum class RouterSum { balance, z_loss, entropy, dropped };  // G x balance loss; lse^2; that of p;
inline constexpr std::int64_t router_sums = 4;               // choices that were dropped

struct RouterStatistics {
  Tensor logits, chosen, choices;  // of all rows
  RowOrder order{};
  std::int64_t group = 0;
  RouterScore score = RouterScore::softmax_all;
  Tensor sums;  // [router_sums + E] fp32, added to
};

void router_forward(const OpContext& context, const RouterForward& args);
void router_backward(const OpContext& context, const RouterBackward& args);
void router_losses(const OpContext& context, const RouterLosses& args);
void router_statistics(const OpContext& context, const RouterStatistics& args);

}  // namespace trainctl
