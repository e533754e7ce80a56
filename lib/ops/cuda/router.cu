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
  std::int64_t tokens, experts, topk, group, capacity;
  RouterChoice choice;
  std::int32_t* chosen;
  float* weight;
  std::int32_t* slot;
  std::int32_t* choices;
  std::int64_t* counts;
};

/// What the choice compares, of one token.
struct Ranking {
  const float* logits;
  const float* bias;
  RouterScore score;
  std::int64_t size;  // of a group of experts
  double largest;     // logit

  __device__ double of(std::int64_t e) const {
    if (score != RouterScore::sigmoid) return logits[e];
    return sigmoid(logits[e]) + (bias != nullptr ? bias[e] : 0);
  }
  /// What the sums of groups add up.
  __device__ double summed(std::int64_t e) const {
    return score == RouterScore::softmax_all ? exp(logits[e] - largest) : of(e);
  }
  /// The best expert of [begin, end) that is not among the first `taken` chosen; -1: there is none.
  __device__ std::int32_t best(std::int64_t begin, std::int64_t end, const std::int32_t* chosen,
                               std::int64_t taken) const {
    std::int32_t best = -1;
    double most = 0;
    for (std::int64_t e = begin; e < end; ++e) {
      bool is_taken = false;
      for (std::int64_t j = 0; j < taken; ++j) is_taken = is_taken || chosen[j] == e;
      if (is_taken) continue;
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

__global__ void __launch_bounds__(block_threads) choose_kernel(RouterArrays args) {
  const std::int64_t t = grid_thread();
  if (t >= args.tokens) return;
  const RouterChoice& choice = args.choice;
  const float* logits = args.logits + t * args.experts;
  std::int32_t* chosen = args.chosen + t * args.topk;
  float* weight = args.weight + t * args.topk;
  const bool in_groups = choice.group_topk < choice.groups;
  double most = logits[0];
  for (std::int64_t e = 1; in_groups && e < args.experts; ++e) {
    most = logits[e] > most ? logits[e] : most;
  }
  const Ranking ranking{logits, args.bias, choice.score, args.experts / choice.groups, most};
  // Until the weights and slots are known, their memory holds the groups.
  std::int32_t* groups = args.slot + t * args.topk;
  if (in_groups) choose_groups(ranking, choice, chosen, args.topk, groups, weight);
  for (std::int64_t j = 0; j < args.topk; ++j) {
    chosen[j] = in_groups ? best_in_groups(ranking, choice.group_topk, groups, chosen, j)
                          : ranking.best(0, args.experts, chosen, j);
  }
  const RouterWeights weights(logits, args.experts, chosen, args.topk, choice.score);
  std::int32_t* choices = args.choices + args.order.token_of(t) / args.group * args.experts;
  for (std::int64_t j = 0; j < args.topk; ++j) {
    weight[j] = static_cast<float>(choice.scaling * weights.of(chosen[j]));
    atomicAdd(choices + chosen[j], 1);  // of integers: in any order
  }
}

/// First choices before second ones, then earlier tokens: a block to an expert of a group.
__global__ void __launch_bounds__(block_threads) drop_late_kernel(RouterArrays args) {
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t group = blockIdx.y;
  if (args.choices[group * args.experts + expert] <= args.capacity) return;
  std::int64_t taken = 0;
  const std::int64_t count = args.group * args.topk;
  for (std::int64_t begin = 0; begin < count; begin += block_threads) {
    const std::int64_t i = begin + threadIdx.x;
    std::int32_t* chosen = nullptr;
    if (i < count) {
      const std::int64_t row = args.order.row_of(group * args.group + i % args.group);
      chosen = args.chosen + row * args.topk + i / args.group;
    }
    const bool mine = chosen != nullptr && *chosen == expert;
    int total = 0;
    const std::int64_t rank = taken + block_rank(mine, total);
    if (mine && rank >= args.capacity) *chosen = ~*chosen;
    taken += total;
  }
}

/// A choice of a group's tokens, token after token: its place among those of all rows.
__device__ std::int64_t place_of(const RouterArrays& args, std::int64_t group, std::int64_t i) {
  return args.order.row_of(group * args.group + i / args.topk) * args.topk + i % args.topk;
}

/// How many of the expert's choices in the group weigh at least as much as these bits, which have
/// the order of weights.
__device__ std::int64_t heavier(const RouterArrays& args, std::int64_t group, std::int32_t expert,
                                unsigned least) {
  int count = 0;
  for (std::int64_t i = threadIdx.x; i < args.group * args.topk; i += block_threads) {
    const std::int64_t at = place_of(args, group, i);
    if (args.chosen[at] == expert && __float_as_uint(args.weight[at]) >= least) ++count;
  }
  return block_sum(count);
}

/// The largest weights, of equal ones the earlier token: a block to an expert of a group.
__global__ void __launch_bounds__(block_threads) drop_light_kernel(RouterArrays args) {
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t group = blockIdx.y;
  if (args.choices[group * args.experts + expert] <= args.capacity) return;
  // The largest bits that `capacity` choices reach: those of the last one that is kept.
  unsigned least = 0;
  for (int bit = 30; bit >= 0; --bit) {
    const unsigned tried = least | 1U << bit;
    if (heavier(args, group, expert, tried) >= args.capacity) least = tried;
  }
  const std::int64_t above = heavier(args, group, expert, least + 1);
  std::int64_t equal = 0;
  const std::int64_t count = args.group * args.topk;
  for (std::int64_t begin = 0; begin < count; begin += block_threads) {
    const std::int64_t i = begin + threadIdx.x;
    const std::int64_t at = i < count ? place_of(args, group, i) : 0;
    const bool mine = i < count && args.chosen[at] == expert;
    const unsigned bits = __float_as_uint(args.weight[at]);
    int total = 0;
    const std::int64_t rank = above + equal + block_rank(mine && bits == least, total);
    if (mine && (bits < least || (bits == least && rank >= args.capacity))) {
      args.chosen[at] = ~expert;
    }
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
  launch(choose_kernel, token_grid(all.tokens), stream, all);
  const auto experts = static_cast<unsigned>(all.experts);
  if (all.capacity > 0) {
    const Grid grid{dim3(experts, static_cast<unsigned>(args.choices.shape[0])),
                    dim3(block_threads)};
    launch(args.by_probability ? drop_light_kernel : drop_late_kernel, grid, stream, all);
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
