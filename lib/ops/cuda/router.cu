// The router's choice. A thread chooses for a token; then a block to each expert, of each group or
// of all rows, looks through the choices in their order, so that what is dropped and where rows go
// depends on nothing else.
#include "ops/router.h"

#include "device/cuda_check.h"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/router_scores.cuh"

namespace trainctl::cuda {
namespace {

struct RouterArrays {
  const float* logits;
  const float* bias;  // or null
  RowOrder order;
  RealTokens real;
  std::int64_t tokens, experts, topk, group;
  RouterCapacity capacity;
  RouterChoice choice;
  std::int32_t* chosen;
  float* weight;
  std::int32_t* slot;
  std::int32_t* choices;
  std::int64_t* counts;

  /// Of an expert, in the group from token `first` on that shares its places. All threads of the
  /// block ask.
  __device__ std::int64_t places(std::int64_t first) const {
    int sharing = 0;
    for (std::int64_t i = threadIdx.x; i < capacity.group; i += block_threads) {
      if (real.has(first + i)) ++sharing;
    }
    return expert_places(capacity.factor, topk, experts, block_sum(sharing));
  }
  __device__ bool is_real(std::int64_t row) const { return real.has(order.token_of(row)); }
  /// Where the choices that are counted for a row's routing group begin.
  __device__ std::int32_t* counted(std::int64_t row) const {
    return choices + order.token_of(row) / group * choice.counted(topk) * experts;
  }
  /// Choice number i of a group's tokens, token after token: its place among those of all rows.
  __device__ std::int64_t place_of(std::int64_t first, std::int64_t i) const {
    return order.row_of(first + i / topk) * topk + i % topk;
  }
  __device__ void drop(std::int64_t at) const {
    chosen[at] = ~chosen[at];
    weight[at] = 0;
  }
};

/// What the choice compares, of one token.
struct Ranking {
  const float* logits;
  const float* bias;
  bool by_sigmoid;
  bool sums_logits;
  std::int64_t size;  // of a group of experts
  double largest;     // logit

  __device__ double of(std::int64_t e) const {
    if (!by_sigmoid) return logits[e];
    return sigmoid(logits[e]) + (bias != nullptr ? bias[e] : 0);
  }
  /// What the sums of groups add up.
  __device__ double summed(std::int64_t e) const {
    return by_sigmoid || sums_logits ? of(e) : exp(logits[e] - largest);
  }
  /// The best expert of [begin, end) that is not among the first `taken` chosen; -1: there is none.
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

/// The group_topk best groups of experts, those with the largest sums of their best, best first:
/// into `best`; their sums into `best_sums`.
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

/// The best expert of the best groups that is not among the first `taken` chosen.
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

/// The weights of a token's choices.
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
  const bool by_sigmoid = choice.score == RouterScore::sigmoid;
  const Ranking ranking{
      logits, args.bias, by_sigmoid, choice.sums_logits, args.experts / choice.groups, most};
  // Until the weights and slots are known, their memory holds the groups.
  std::int32_t* slot = args.slot + t * args.topk;
  if (in_groups) {
    choose_groups(ranking, choice, chosen, args.topk, slot, args.weight + t * args.topk);
  }
  std::int32_t* counted = args.counted(t);
  for (std::int64_t j = 0; j < args.topk; ++j) {
    chosen[j] = in_groups ? best_in_groups(ranking, choice.group_topk, slot, chosen, j)
                          : ranking.best(0, args.experts, chosen, j);
    atomicAdd(counted + chosen[j], 1);  // of integers: in any order
  }
  RouterChoice before = choice;  // for the weights until it is known who is dropped
  if (choice.weighting == RouterWeighting::kept) before.weighting = RouterWeighting::all;
  weigh(args, t, before);
  if (!choice.free_counts) return;
  const Ranking free{logits, nullptr, false, false, args.experts, 0};
  for (std::int64_t j = 0; j < args.topk; ++j) {
    slot[j] = free.best(0, args.experts, slot, j);
    atomicAdd(counted + args.experts + slot[j], 1);
  }
}

/// The choice of each token in a round: by p, which a logit far below the others leaves nothing of.
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

/// The weights when it is known who is dropped.
__global__ void __launch_bounds__(block_threads) weigh_kernel(RouterArrays args) {
  const std::int64_t t = grid_thread();
  if (t < args.tokens) weigh(args, t, args.choice);
}

/// First choices before second ones, then earlier tokens, or token after token: a block to an
/// expert of a group. Of the first `rounds` choices of each token; what was dropped before takes no
/// place.
__global__ void __launch_bounds__(block_threads)
    drop_late_kernel(RouterArrays args, std::int64_t rounds) {
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t tokens = args.capacity.group;
  const std::int64_t first = blockIdx.y * tokens;
  const std::int64_t places = args.places(first);
  const bool by_token = args.capacity.overflow == RouterOverflow::token;
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

/// How many of the expert's choices in the group weigh at least as much as these bits, which have
/// the order of weights.
__device__ std::int64_t heavier(const RouterArrays& args, std::int64_t first, std::int32_t expert,
                                unsigned least) {
  int count = 0;
  for (std::int64_t i = threadIdx.x; i < args.capacity.group * args.topk; i += block_threads) {
    const std::int64_t at = args.place_of(first, i);
    if (args.chosen[at] == expert && __float_as_uint(args.weight[at]) >= least) ++count;
  }
  return block_sum(count);
}

/// The largest weights, of equal ones the earlier token: a block to an expert of a group.
__global__ void __launch_bounds__(block_threads) drop_light_kernel(RouterArrays args) {
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t first = blockIdx.y * args.capacity.group;
  const std::int64_t places = args.places(first);
  if (heavier(args, first, expert, 0) <= places) return;
  // The largest bits that so many choices reach: those of the last one that is kept.
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

/// counts[e] = rows of expert e, and for each of its choices, in their order, slot = its number: a
/// block to an expert. Choices that were dropped get -1 from the first block.
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

/// From a row's number among those of its expert to its slot.
__global__ void __launch_bounds__(block_threads)
    shift_kernel(const std::int32_t* chosen, std::int64_t count, RowChunking chunking,
                 std::int32_t* slot) {
  const std::int64_t i = grid_thread();
  if (i >= count || chosen[i] < 0) return;
  slot[i] = static_cast<std::int32_t>(chunking.slot_of(chosen[i], slot[i]));
}

}  // namespace

void router_forward(const OpContext& context, const RouterForward& args) {
  const cudaStream_t stream = stream_of(context);
  const RouterArrays all{args.logits.elements<float>(),
                         args.bias.empty() ? nullptr : args.bias.elements<float>(),
                         args.order,
                         real_tokens(args.real),
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
  if (limited && all.capacity.overflow == RouterOverflow::probability) {
    launch(drop_light_kernel, of_experts, stream, all);
  } else if (limited && !all.choice.rounds) {
    launch(drop_late_kernel, of_experts, stream, all, all.topk);
  }
  if (all.choice.rounds || all.choice.weighting == RouterWeighting::kept) {
    launch(weigh_kernel, token_grid(all.tokens), stream, all);
  }
  const std::int64_t first = args.first * all.topk;
  const std::int64_t count = args.count > 0 ? args.count * all.topk : args.chosen.numel();
  launch(number_kernel, {dim3(experts), dim3(block_threads)}, stream, all.chosen + first, count,
         all.slot + first, all.counts);
  launch(shift_kernel, {blocks_for(count, block_threads, 0x7fffffff), dim3(block_threads)}, stream,
         all.chosen + first, count, RowChunking{all.counts, all.experts, args.chunks},
         all.slot + first);
}

}  // namespace trainctl::cuda
