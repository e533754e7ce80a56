// The router: choices, gradients, losses and statistics.

#include <cstdint>

#include "device/cuda_check.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/router.h"

namespace trainctl::cuda {
namespace {

// The router's choices. First, one thread per token chooses. Then one block per expert, for each
// group or for all rows, processes the choices in order, so that the result of dropping and the
// order of rows are deterministic.

// Scores of experts for the router's kernels, in double, so that choices equal those of the CPU.
// The formulas are in ops/router.h.

__device__ inline double log_sum_exp(const float* logits, std::int64_t experts) {
  double most = logits[0];
  for (std::int64_t e = 1; e < experts; ++e) most = logits[e] > most ? logits[e] : most;
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) sum += exp(logits[e] - most);
  return most + log(sum);
}

__device__ inline std::int32_t expert_of(std::int32_t chosen) {
  return chosen < 0 ? ~chosen : chosen;
}

__device__ inline double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/// Whether `expert` is among the token's kept choices before number `end`.
__device__ inline bool has_kept(const std::int32_t* chosen, std::int64_t end, std::int64_t expert) {
  for (std::int64_t j = 0; j < end; ++j) {
    if (chosen[j] == expert) return true;
  }
  return false;
}

/// The weights of a token's choices before scaling: exp(logit) or sigmoid(logit) over a sum.
struct RouterWeights {
  const float* logits;
  const std::int32_t* chosen;
  bool by_sigmoid;
  ExpertWeights weighting;
  double norm = 1;

  __device__ RouterWeights(const float* of_token, std::int64_t experts, const std::int32_t* choices,
                           std::int64_t topk, const RouterChoice& choice)
      : logits(of_token), chosen(choices), by_sigmoid(choice.sigmoid), weighting(choice.weighting) {
    const bool by_chosen = weighting == ExpertWeights::chosen;
    double most = 0;  // logarithm of the first divisor of scores
    if (!by_sigmoid) {
      most = by_chosen ? double{logits[expert_of(chosen[0])]} : log_sum_exp(logits, experts);
    }
    if (weighting == ExpertWeights::all) {
      norm = by_sigmoid ? 1 : most;
      return;
    }
    double sum = !by_chosen ? min_kept_sum : by_sigmoid ? min_chosen_sum : 0;
    for (std::int64_t j = 0; j < topk; ++j) {
      if (!is_summed(j)) continue;
      const double logit = logits[expert_of(chosen[j])];
      sum += by_sigmoid ? sigmoid(logit) : exp(logit - most);
    }
    norm = by_sigmoid ? sum : most + log(sum);
  }

  /// The weight that an expert has if kept.
  __device__ double of(std::int64_t expert) const {
    return by_sigmoid ? sigmoid(logits[expert]) / norm : exp(logits[expert] - norm);
  }
  /// Whether choice j gets a weight.
  __device__ bool has(std::int64_t j) const { return chosen[j] >= 0 && !is_again(j); }
  /// Whether the sum that divides the weights contains the score of choice j.
  __device__ bool is_summed(std::int64_t j) const {
    if (weighting == ExpertWeights::all) return false;
    return weighting == ExpertWeights::kept ? has(j) : !is_again(j);
  }
  __device__ bool is_again(std::int64_t j) const {
    return has_kept(chosen, j, expert_of(chosen[j]));
  }
  /// The derivative of an expert's log score by its own logit, with other logits fixed.
  __device__ double inner(std::int64_t expert) const {
    return by_sigmoid ? 1 - sigmoid(logits[expert]) : 1;
  }
  /// The remaining gradient of an expert's logit through the softmax over all experts, relative to
  /// the mean of the gradients of the weights.
  __device__ double rest(std::int64_t expert) const {
    if (by_sigmoid || weighting == ExpertWeights::chosen) return 0;
    return of(expert) * (weighting == ExpertWeights::kept ? min_kept_sum : 1);
  }
};

/// p in the losses, and the derivative of p(e) by e's logit with the other terms of the sum fixed.
struct RouterProbabilities {
  const float* logits;
  bool by_sigmoid;
  double log_sum;
  double sum = 0;

  __device__ RouterProbabilities(const float* of_token, std::int64_t experts,
                                 bool scores_by_sigmoid)
      : logits(of_token), by_sigmoid(scores_by_sigmoid), log_sum(log_sum_exp(of_token, experts)) {
    for (std::int64_t e = 0; by_sigmoid && e < experts; ++e) sum += sigmoid(logits[e]);
  }
  __device__ double softmax(std::int64_t e) const { return exp(logits[e] - log_sum); }
  __device__ double of(std::int64_t e) const {
    return by_sigmoid ? sigmoid(logits[e]) / sum : softmax(e);
  }
  __device__ double slope(std::int64_t e) const {
    return by_sigmoid ? of(e) * (1 - sigmoid(logits[e])) : softmax(e);
  }
  __device__ double log_of(std::int64_t e) const {
    return by_sigmoid ? log(of(e)) : logits[e] - log_sum;
  }
};

inline const std::uint8_t* marks_of(const Tensor& real) {
  return real.empty() ? nullptr : real.elements<std::uint8_t>();
}

struct RouterArrays {
  const float* logits;
  const float* bias;  // may be null
  RowOrder order;
  const std::uint8_t* real;
  std::int64_t tokens, experts, topk, group;
  RouterCapacity capacity;
  RouterChoice choice;
  std::int32_t* chosen;
  float* weight;
  std::int32_t* slot;
  std::int32_t* choices;
  std::int64_t* counts;

  /// The number of places per expert in the capacity group that begins at token `first`. All
  /// threads of the block must call it.
  __device__ std::int64_t places(std::int64_t first) const {
    int sharing = 0;
    for (std::int64_t i = threadIdx.x; i < capacity.group; i += block_threads) {
      if (is_counted(real, first + i)) ++sharing;
    }
    return expert_places(capacity.factor, topk, experts, block_sum(sharing));
  }
  __device__ bool is_real(std::int64_t row) const { return is_counted(real, order.token_of(row)); }
  /// The counts of choices for the routing group of a row.
  __device__ std::int32_t* counted(std::int64_t row) const {
    return choices + order.token_of(row) / group * choice.counted(topk) * experts;
  }
  /// The index, among the choices of all rows, of choice i of a group (ordered by token).
  __device__ std::int64_t place_of(std::int64_t first, std::int64_t i) const {
    return order.row_of(first + i / topk) * topk + i % topk;
  }
  __device__ void drop(std::int64_t at) const {
    chosen[at] = ~chosen[at];
    weight[at] = 0;
  }
};

/// The values of one token's experts that its choice compares.
struct Ranking {
  const float* logits;
  const float* bias;
  bool by_sigmoid;
  bool sums_logits;
  std::int64_t size;  // experts per group of experts
  double largest;     // largest logit

  __device__ double of(std::int64_t e) const {
    if (!by_sigmoid) return logits[e];
    return sigmoid(logits[e]) + (bias != nullptr ? bias[e] : 0);
  }
  /// An expert's term in the sum of its group of experts.
  __device__ double summed(std::int64_t e) const {
    return by_sigmoid || sums_logits ? of(e) : exp(logits[e] - largest);
  }
  /// The best expert in [begin, end) that is not among the first `taken` chosen, or -1 if none.
  __device__ std::int32_t best(std::int64_t begin, std::int64_t end, const std::int32_t* chosen,
                               std::int64_t taken) const {
    std::int32_t best = -1;
    double most = 0;
    for (std::int64_t e = begin; e < end; ++e) {
      if (has_kept(chosen, taken, e)) continue;
      const double value = of(e);
      if (best >= 0 && value <= most) continue;
      best = static_cast<std::int32_t>(e);
      most = value;
    }
    return best;
  }
};

/// Finds the group_topk groups with the largest sums of their best experts, best first. Writes
/// these groups to `best`, and their sums to `best_sums`.
__device__ void choose_groups(const Ranking& ranking, const RouterChoice& choice,
                              std::int32_t* chosen, std::int64_t topk, std::int32_t* best,
                              float* best_sums) {
  const std::int64_t most = choice.group_topk;
  for (std::int64_t group = 0; group < choice.groups; ++group) {
    const std::int64_t begin = group * ranking.size;
    double sum = 0;
    for (std::int64_t j = 0; j < topk / most; ++j) {
      chosen[j] = ranking.best(begin, begin + ranking.size, chosen, j);
      sum += ranking.summed(chosen[j]);
    }
    const auto rounded = static_cast<float>(sum);
    std::int64_t at = min(group, most);
    while (at > 0 && best_sums[at - 1] < rounded) --at;
    if (at == most) continue;
    for (std::int64_t i = min(group, most - 1); i > at; --i) {
      best[i] = best[i - 1];
      best_sums[i] = best_sums[i - 1];
    }
    best[at] = static_cast<std::int32_t>(group);
    best_sums[at] = rounded;
  }
}

/// The best expert in the best groups that is not among the first `taken` chosen.
__device__ std::int32_t best_in_groups(const Ranking& ranking, std::int64_t groups,
                                       const std::int32_t* best_groups, const std::int32_t* chosen,
                                       std::int64_t taken) {
  std::int32_t most = -1;
  for (std::int64_t i = 0; i < groups; ++i) {
    const std::int64_t begin = best_groups[i] * ranking.size;
    const std::int32_t best = ranking.best(begin, begin + ranking.size, chosen, taken);
    if (best < 0) continue;
    const double gain = most < 0 ? 1 : ranking.of(best) - ranking.of(most);
    if (gain > 0 || (gain == 0 && best < most)) most = best;
  }
  return most;
}

/// Computes the weights of a token's choices.
__device__ void weigh(const RouterArrays& args, std::int64_t row, const RouterChoice& choice) {
  const std::int32_t* chosen = args.chosen + row * args.topk;
  const RouterWeights weights(args.logits + row * args.experts, args.experts, chosen, args.topk,
                              choice);
  for (std::int64_t j = 0; j < args.topk; ++j) {
    args.weight[row * args.topk + j] =
        weights.has(j) ? static_cast<float>(choice.scaling * weights.of(chosen[j])) : 0;
  }
}

__global__ void __launch_bounds__(block_threads) choose_kernel(RouterArrays args) {
  const std::int64_t t = grid_thread();
  if (t >= args.tokens) return;
  const RouterChoice& choice = args.choice;
  const float* logits = args.logits + t * args.experts;
  std::int32_t* chosen = args.chosen + t * args.topk;
  if (!args.is_real(t)) {
    for (std::int64_t j = 0; j < args.topk; ++j) {
      chosen[j] = ~0;
      args.weight[t * args.topk + j] = 0;
    }
    return;
  }
  const bool in_groups = choice.group_topk < choice.groups;
  double most = logits[0];
  for (std::int64_t e = 1; in_groups && e < args.experts; ++e) {
    most = logits[e] > most ? logits[e] : most;
  }
  const bool by_sigmoid = choice.sigmoid;
  const Ranking ranking{
      logits, args.bias, by_sigmoid, choice.sums_logits, args.experts / choice.groups, most};
  // The memory of weights and slots holds the groups until the former are computed.
  std::int32_t* slot = args.slot + t * args.topk;
  if (in_groups) {
    choose_groups(ranking, choice, chosen, args.topk, slot, args.weight + t * args.topk);
  }
  std::int32_t* counted = args.counted(t);
  for (std::int64_t j = 0; j < args.topk; ++j) {
    chosen[j] = in_groups ? best_in_groups(ranking, choice.group_topk, slot, chosen, j)
                          : ranking.best(0, args.experts, chosen, j);
    atomicAdd(counted + chosen[j], 1);  // integers: any order gives the same sum
  }
  RouterChoice before = choice;  // for weights until it is known which choices are dropped
  if (choice.weighting == ExpertWeights::kept) before.weighting = ExpertWeights::all;
  weigh(args, t, before);
  if (!choice.free_counts) return;
  const Ranking free{logits, nullptr, false, false, args.experts, 0};
  for (std::int64_t j = 0; j < args.topk; ++j) {
    slot[j] = free.best(0, args.experts, slot, j);
    atomicAdd(counted + args.experts + slot[j], 1);
  }
}

/// One round's choice of each token, by p, in which a logit far below the largest vanishes.
__global__ void __launch_bounds__(block_threads)
    round_kernel(RouterArrays args, std::int64_t round) {
  const std::int64_t t = grid_thread();
  if (t >= args.tokens) return;
  const float* logits = args.logits + t * args.experts;
  std::int32_t* chosen = args.chosen + t * args.topk;
  if (!args.is_real(t)) {
    chosen[round] = ~0;
    return;
  }
  const Ranking ranking{logits, nullptr, false, false, args.experts, 0};
  std::int32_t best = ranking.best(0, args.experts, chosen, round);
  if (round > 0) {
    const double p = exp(logits[best] - log_sum_exp(logits, args.experts));
    if (!(static_cast<float>(p) > 0)) best = 0;
  }
  chosen[round] = best;
  atomicAdd(args.counted(t) + round * args.experts + best, 1);
}

/// Computes the weights once the dropped choices are known.
__global__ void __launch_bounds__(block_threads) weigh_kernel(RouterArrays args) {
  const std::int64_t t = grid_thread();
  if (t < args.tokens) weigh(args, t, args.choice);
}

/// Keeps first choices before second ones, then earlier tokens; or earlier tokens first. One block
/// per expert and group, for the first `rounds` choices of each token. Earlier dropped choices take
/// no place.
__global__ void __launch_bounds__(block_threads)
    drop_late_kernel(RouterArrays args, std::int64_t rounds) {
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t tokens = args.capacity.group;
  const std::int64_t first = blockIdx.y * tokens;
  const std::int64_t places = args.places(first);
  const bool by_token = args.capacity.overflow == Overflow::token;
  std::int64_t taken = 0;
  for (std::int64_t begin = 0; begin < tokens * rounds; begin += block_threads) {
    const std::int64_t i = begin + threadIdx.x;
    bool mine = i < tokens * rounds;
    std::int64_t at = 0;
    if (mine) {
      const std::int64_t by_position = i % tokens * args.topk + i / tokens;
      at = args.place_of(first, by_token ? i : by_position);
      mine = args.chosen[at] == expert;
    }
    int total = 0;
    const std::int64_t rank = taken + block_rank(mine, total);
    if (mine && rank >= places) args.drop(at);
    taken += total;
  }
}

/// The number of the expert's choices in the group whose weight's bits are at least `least`. The
/// bits of weights have the same order as the weights.
__device__ std::int64_t heavier(const RouterArrays& args, std::int64_t first, std::int32_t expert,
                                unsigned least) {
  int count = 0;
  for (std::int64_t i = threadIdx.x; i < args.capacity.group * args.topk; i += block_threads) {
    const std::int64_t at = args.place_of(first, i);
    if (args.chosen[at] == expert && __float_as_uint(args.weight[at]) >= least) ++count;
  }
  return block_sum(count);
}

/// Keeps the largest weights, then earlier tokens. One block per expert and group.
__global__ void __launch_bounds__(block_threads) drop_light_kernel(RouterArrays args) {
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t first = blockIdx.y * args.capacity.group;
  const std::int64_t places = args.places(first);
  if (heavier(args, first, expert, 0) <= places) return;
  // Finds the largest bits that at least `places` choices reach: those of the last kept choice.
  unsigned least = 0;
  for (int bit = 30; bit >= 0; --bit) {
    const unsigned tried = least | 1U << bit;
    if (heavier(args, first, expert, tried) >= places) least = tried;
  }
  const std::int64_t above = heavier(args, first, expert, least + 1);
  std::int64_t equal = 0;
  const std::int64_t count = args.capacity.group * args.topk;
  for (std::int64_t begin = 0; begin < count; begin += block_threads) {
    const std::int64_t i = begin + threadIdx.x;
    const std::int64_t at = i < count ? args.place_of(first, i) : 0;
    const bool mine = i < count && args.chosen[at] == expert;
    const unsigned bits = mine ? __float_as_uint(args.weight[at]) : 0;
    int total = 0;
    const std::int64_t rank = above + equal + block_rank(mine && bits == least, total);
    if (mine && (bits < least || (bits == least && rank >= places))) args.drop(at);
    equal += total;
  }
}

/// Sets counts[e] to the rows of expert e, and the slot of each of its choices to its number in
/// order. One block per expert; the first block sets slots of dropped choices to -1.
__global__ void __launch_bounds__(block_threads)
    number_kernel(const std::int32_t* chosen, std::int64_t count, std::int32_t* slot,
                  std::int64_t* counts) {
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  std::int64_t before = 0;
  for (std::int64_t begin = 0; begin < count; begin += block_threads) {
    const std::int64_t i = begin + threadIdx.x;
    const std::int32_t mine = i < count ? chosen[i] : -1;
    int total = 0;
    const std::int64_t rank = before + block_rank(mine == expert, total);
    if (mine == expert) slot[i] = static_cast<std::int32_t>(rank);
    if (i < count && mine < 0 && expert == 0) slot[i] = -1;
    before += total;
  }
  if (threadIdx.x == 0) counts[expert] = before;
}

/// Converts a row's number within its expert to its slot.
__global__ void __launch_bounds__(block_threads)
    shift_kernel(const std::int32_t* chosen, std::int64_t count, const std::int64_t* counts,
                 std::int64_t experts, std::int64_t chunks, std::int32_t* slot) {
  const std::int64_t i = grid_thread();
  if (i >= count || chosen[i] < 0) return;
  slot[i] = static_cast<std::int32_t>(slot_of(counts, experts, chunks, chosen[i], slot[i]));
}

}  // namespace

void router_forward(const OpContext& context, const RouterForward& args) {
  const cudaStream_t stream = stream_of(context);
  const RouterArrays all{args.logits.elements<float>(),
                         args.bias.empty() ? nullptr : args.bias.elements<float>(),
                         args.order,
                         marks_of(args.real),
                         args.logits.shape[0],
                         args.logits.shape[1],
                         args.chosen.shape[1],
                         args.group,
                         args.capacity,
                         args.choice,
                         args.chosen.elements<std::int32_t>(),
                         args.weight.elements<float>(),
                         args.slot.elements<std::int32_t>(),
                         args.choices.elements<std::int32_t>(),
                         args.counts.elements<std::int64_t>()};
  CUDA_CHECK(cudaMemsetAsync(args.choices.data, 0, static_cast<std::size_t>(args.choices.bytes()),
                             stream));
  const auto experts = static_cast<unsigned>(all.experts);
  const bool limited = all.capacity.factor > 0;
  const std::int64_t groups = limited ? all.tokens / all.capacity.group : 1;
  const Grid of_experts{dim3(experts, static_cast<unsigned>(groups)), dim3(block_threads)};
  for (std::int64_t round = 0; all.choice.rounds && round < all.topk; ++round) {
    launch(round_kernel, token_grid(all.tokens), stream, all, round);
    if (limited) launch(drop_late_kernel, of_experts, stream, all, round + 1);
  }
  if (!all.choice.rounds) launch(choose_kernel, token_grid(all.tokens), stream, all);
  if (limited && all.capacity.overflow == Overflow::probability) {
    launch(drop_light_kernel, of_experts, stream, all);
  } else if (limited && !all.choice.rounds) {
    launch(drop_late_kernel, of_experts, stream, all, all.topk);
  }
  if (all.choice.rounds || all.choice.weighting == ExpertWeights::kept) {
    launch(weigh_kernel, token_grid(all.tokens), stream, all);
  }
  const std::int64_t first = args.first * all.topk;
  const std::int64_t count = args.count > 0 ? args.count * all.topk : args.chosen.numel();
  launch(number_kernel, {dim3(experts), dim3(block_threads)}, stream, all.chosen + first, count,
         all.slot + first, all.counts);
  launch(shift_kernel, {blocks_for(count, block_threads, 0x7fffffff), dim3(block_threads)}, stream,
         all.chosen + first, count, all.counts, all.experts, args.chunks, all.slot + first);
}

// The router's gradients and statistics, one thread per token.
namespace {

/// A term of a token's balance loss: the mean, weighted by p, of the choices counted for the token;
/// or, for round `number`, weighted by q = p m / S.
struct RouterBalance {
  const RouterProbabilities& p;
  const std::int32_t* choices;
  const std::int32_t* chosen;  // null unless this is a round
  std::int64_t number;
  double sum = 1;
  double mean = 0;

  __device__ RouterBalance(const RouterProbabilities& of_token, std::int64_t experts,
                           const std::int32_t* counted, const std::int32_t* choices_of_token,
                           std::int64_t round)
      : p(of_token), choices(counted), chosen(choices_of_token), number(round) {
    if (chosen != nullptr) sum = min_kept_sum;
    for (std::int64_t e = 0; chosen != nullptr && e < experts; ++e) sum += left(e);
    for (std::int64_t e = 0; e < experts; ++e) mean += left(e) / sum * choices[e];
  }
  __device__ double left(std::int64_t e) const {
    return chosen != nullptr && has_kept(chosen, number, e) ? 0 : p.of(e);
  }
  /// The derivative of the mean by e's logit. q does not add up to 1, because S has an additional
  /// term.
  __device__ double slope(std::int64_t e) const {
    if (chosen == nullptr) return p.slope(e) * (choices[e] - mean);
    return (left(e) * (choices[e] - mean) - p.of(e) * mean * min_kept_sum) / sum;
  }
};

/// The number of terms per token; balance_of returns a token's term j. `choices` are those counted
/// for its group, from the first row of RouterChoice::counted on.
__device__ std::int64_t balance_terms(const RouterChoice& choice, std::int64_t topk) {
  return choice.rounds ? topk : 1;
}
__device__ RouterBalance balance_of(const RouterChoice& choice, const RouterProbabilities& p,
                                    std::int64_t experts, const std::int32_t* chosen,
                                    const std::int32_t* choices, std::int64_t j) {
  if (choice.rounds) return {p, experts, choices + j * experts, chosen, j};
  return {p, experts, choices + (choice.free_counts ? experts : 0), nullptr, 0};
}

/// The factor of RouterBalance::mean: experts / counted choices, which is equal for all terms of a
/// group. `choices` is as in balance_of.
__device__ double even_share(const std::int32_t* choices, std::int64_t experts) {
  std::int64_t counted = 0;
  for (std::int64_t e = 0; e < experts; ++e) counted += choices[e];
  return static_cast<double>(experts) / static_cast<double>(counted);
}

struct RouterLossArrays {
  const float* logits;
  const std::int32_t* chosen;
  const float* d_weight;
  float* d_logits;
  std::int64_t tokens, experts, topk;
  RouterChoice choice;
};

// With weights w = scaling v, the derivative of v_j by its own logit is v_j f_j (1 - v_j), or v_j
// f_j if no sum of choices divides v; f = 1 - s for sigmoid scores, else 1.
__global__ void __launch_bounds__(block_threads) router_backward_kernel(RouterLossArrays args) {
  const std::int64_t t = grid_thread();
  if (t >= args.tokens) return;
  const float* logits = args.logits + t * args.experts;
  const std::int32_t* chosen = args.chosen + t * args.topk;
  const float* d_weight = args.d_weight + t * args.topk;
  float* d_logits = args.d_logits + t * args.experts;
  const RouterWeights weights(logits, args.experts, chosen, args.topk, args.choice);
  const double scaling = args.choice.scaling;
  double mean = 0;
  for (std::int64_t j = 0; j < args.topk; ++j) {
    if (weights.has(j)) mean += weights.of(chosen[j]) * d_weight[j] * scaling;
  }
  for (std::int64_t e = 0; e < args.experts; ++e) {
    d_logits[e] = static_cast<float>(-weights.rest(e) * mean);
  }
  for (std::int64_t j = 0; j < args.topk; ++j) {
    const std::int32_t e = expert_of(chosen[j]);
    const double own = weights.has(j) ? scaling * d_weight[j] : 0;
    const double of_sum = weights.is_summed(j) ? mean : 0;
    d_logits[e] += static_cast<float>(weights.of(e) * weights.inner(e) * (own - of_sum));
  }
}

/// The arguments of the losses and of the statistics.
struct Losses {
  const float* logits;
  const std::int32_t* chosen;
  RowOrder order;
  const std::uint8_t* real;
  std::int64_t first, tokens, experts, topk, group;
  RouterChoice choice;
  const std::int32_t* choices;
  float balance_factor, z_factor;
  float* d_logits;
  const StepState* state;
  double* partial;  // [blocks, router_sums]
  float* sums;
};

Losses losses_of(const OpContext& context, const RouterLosses& args) {
  return {args.logits.elements<float>(),
          args.chosen.elements<std::int32_t>(),
          args.order,
          marks_of(args.real),
          args.first,
          args.logits.shape[0],
          args.logits.shape[1],
          args.chosen.shape[1],
          args.group,
          args.choice,
          args.choices.elements<std::int32_t>(),
          args.balance_factor,
          args.z_factor,
          static_cast<float*>(args.d_logits.data),
          args.state,
          reinterpret_cast<double*>(context.scratch),
          static_cast<float*>(args.sums.data)};
}

__global__ void __launch_bounds__(block_threads) losses_kernel(Losses args) {
  const std::int64_t t = grid_thread();
  if (t >= args.tokens) return;
  const double scale = args.state->loss_scale * double{args.state->token_factor};
  const std::int64_t token = args.order.token_of(args.first + t);
  if (!is_counted(args.real, token)) return;
  const RouterProbabilities p(args.logits + t * args.experts, args.experts, args.choice.sigmoid);
  const std::int32_t* choices =
      args.choices + token / args.group * args.choice.counted(args.topk) * args.experts;
  const double even = even_share(choices, args.experts);
  float* d_logits = args.d_logits + t * args.experts;
  for (std::int64_t j = 0; j < balance_terms(args.choice, args.topk); ++j) {
    const RouterBalance balance =
        balance_of(args.choice, p, args.experts, args.chosen + t * args.topk, choices, j);
    for (std::int64_t e = 0; e < args.experts; ++e) {
      d_logits[e] += static_cast<float>(scale * args.balance_factor * even * balance.slope(e));
    }
  }
  for (std::int64_t e = 0; args.z_factor != 0 && e < args.experts; ++e) {
    d_logits[e] += static_cast<float>(scale * args.z_factor * 2 * p.log_sum * p.softmax(e));
  }
}

constexpr unsigned max_partial = 256;  // number of blocks

__global__ void __launch_bounds__(block_threads) partial_kernel(Losses args) {
  double of[router_sums] = {};
  for (std::int64_t t = grid_thread(); t < args.tokens; t += grid_threads()) {
    const std::int64_t token = args.order.token_of(t);
    if (!is_counted(args.real, token)) continue;
    const RouterProbabilities p(args.logits + t * args.experts, args.experts, args.choice.sigmoid);
    const std::int32_t* choices =
        args.choices + token / args.group * args.choice.counted(args.topk) * args.experts;
    const double even = even_share(choices, args.experts);
    for (std::int64_t j = 0; j < balance_terms(args.choice, args.topk); ++j) {
      of[static_cast<int>(RouterSum::balance)] +=
          even *
          balance_of(args.choice, p, args.experts, args.chosen + t * args.topk, choices, j).mean;
    }
    for (std::int64_t e = 0; e < args.experts; ++e) {
      const double share = p.of(e);
      if (share > 0) of[static_cast<int>(RouterSum::entropy)] -= share * p.log_of(e);
    }
    of[static_cast<int>(RouterSum::z_loss)] += p.log_sum * p.log_sum;
    for (std::int64_t j = 0; j < args.topk; ++j) {
      if (args.chosen[t * args.topk + j] < 0) of[static_cast<int>(RouterSum::dropped)] += 1;
    }
  }
  for (int i = 0; i < router_sums; ++i) {
    const double sum = block_sum(of[i]);
    if (threadIdx.x == 0) args.partial[blockIdx.x * router_sums + i] = sum;
  }
}

__global__ void __launch_bounds__(block_threads)
    add_statistics_kernel(Losses args, unsigned blocks) {
  for (int i = 0; i < router_sums; ++i) {
    double mine = threadIdx.x < blocks ? args.partial[threadIdx.x * router_sums + i] : 0;
    mine = block_sum(mine);
    if (threadIdx.x == 0) args.sums[i] += static_cast<float>(mine);
  }
  for (std::int64_t e = threadIdx.x; e < args.experts; e += block_threads) {
    float sum = args.sums[router_sums + e];
    const std::int64_t counted = args.choice.counted(args.topk);
    for (std::int64_t i = 0; i < args.tokens / args.group * counted; ++i) {
      if (args.choice.free_counts && i % counted > 0) continue;  // counts free choices
      sum += static_cast<float>(args.choices[i * args.experts + e]);
    }
    args.sums[router_sums + e] = sum;
  }
}

}  // namespace

void router_backward(const OpContext& context, const RouterBackward& args) {
  const RouterLossArrays all{args.logits.elements<float>(),
                             args.chosen.elements<std::int32_t>(),
                             args.d_weight.elements<float>(),
                             args.d_logits.elements<float>(),
                             args.logits.shape[0],
                             args.logits.shape[1],
                             args.chosen.shape[1],
                             args.choice};
  launch(router_backward_kernel, token_grid(all.tokens), stream_of(context), all);
}

void router_losses(const OpContext& context, const RouterLosses& args) {
  const Losses all = losses_of(context, args);
  launch(losses_kernel, token_grid(all.tokens), stream_of(context), all);
}

void router_statistics(const OpContext& context, const RouterLosses& args) {
  const Losses all = losses_of(context, args);
  const dim3 blocks = blocks_for(all.tokens, block_threads, max_partial);
  launch(partial_kernel, {blocks, dim3(block_threads)}, stream_of(context), all);
  launch(add_statistics_kernel, {dim3(1), dim3(block_threads)}, stream_of(context), all, blocks.x);
}

}  // namespace trainctl::cuda
