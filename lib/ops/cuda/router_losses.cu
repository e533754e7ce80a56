// The router's gradients, and what it adds up: a thread to a token.
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/router_scores.cuh"

namespace trainctl::cuda {
namespace {

/// A term of the balance loss of a token: the mean of the choices that are counted for it, by p;
/// or, for round `number`, by q = p m / S.
struct RouterBalance {
  const RouterProbabilities& p;
  const std::int32_t* choices;
  const std::int32_t* chosen;  // or null: not of a round
  std::int64_t number;
  double sum = 1;
  double mean = 0;

  __device__ RouterBalance(const RouterProbabilities& of_token, std::int64_t experts,
                           const std::int32_t* counted, const std::int32_t* choices_of_token,
                           std::int64_t round)
      : p(of_token), choices(counted), chosen(choices_of_token), number(round) {
    if (chosen != nullptr) sum = least_kept_sum;
    for (std::int64_t e = 0; chosen != nullptr && e < experts; ++e) sum += left(e);
    for (std::int64_t e = 0; e < experts; ++e) mean += left(e) / sum * choices[e];
  }
  __device__ double left(std::int64_t e) const {
    return chosen != nullptr && has_kept(chosen, number, e) ? 0 : p.of(e);
  }
  /// The slope of the mean along the logit of e. What S has beside p m keeps q from adding up to 1.
  __device__ double slope(std::int64_t e) const {
    if (chosen == nullptr) return p.slope(e) * (choices[e] - mean);
    return (left(e) * (choices[e] - mean) - p.of(e) * mean * least_kept_sum) / sum;
  }
};

/// How many terms a token has, and the term number j of one; `choices` are those of its group, from
/// the first row of RouterChoice::counted on.
__device__ std::int64_t balance_terms(const RouterChoice& choice, std::int64_t topk) {
  return choice.rounds ? topk : 1;
}
__device__ RouterBalance balance_of(const RouterChoice& choice, const RouterProbabilities& p,
                                    std::int64_t experts, const std::int32_t* chosen,
                                    const std::int32_t* choices, std::int64_t j) {
  if (choice.rounds) return {p, experts, choices + j * experts, chosen, j};
  return {p, experts, choices + (choice.free_counts ? experts : 0), nullptr, 0};
}

/// What RouterBalance::mean is multiplied by: experts over the choices that are counted for a term,
/// which are as many in each of a group. `choices` as in balance_of.
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

// With weights w = scaling v: the slope of v_j along its own logit is v_j f_j (1 - v_j) or, where v
// is not divided by a sum of choices, v_j f_j; f = 1 - s for sigmoid scores, else 1.
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

struct Losses {
  const float* logits;
  const std::int32_t* chosen;
  RowOrder order;
  RealTokens real;
  std::int64_t first, tokens, experts, topk, group;
  RouterChoice choice;
  const std::int32_t* choices;
  float balance_factor, z_factor;
  float* d_logits;
  const StepState* state;
};

__global__ void __launch_bounds__(block_threads) losses_kernel(Losses args) {
  const std::int64_t t = grid_thread();
  if (t >= args.tokens) return;
  const double scale = args.state->loss_scale * double{args.state->token_factor};
  const std::int64_t token = args.order.token_of(args.first + t);
  if (!args.real.has(token)) return;
  const RouterProbabilities p(args.logits + t * args.experts, args.experts, args.choice.score);
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

struct Statistics {
  const float* logits;
  const std::int32_t* chosen;
  const std::int32_t* choices;
  RowOrder order;
  RealTokens real;
  std::int64_t tokens, experts, topk, group;
  RouterChoice choice;
  double* partial;  // [blocks, router_sums]
  float* sums;
};

constexpr unsigned most_partial = 256;  // blocks

__global__ void __launch_bounds__(block_threads) partial_kernel(Statistics args) {
  double of[router_sums] = {};
  for (std::int64_t t = grid_thread(); t < args.tokens; t += grid_threads()) {
    const std::int64_t token = args.order.token_of(t);
    if (!args.real.has(token)) continue;
    const RouterProbabilities p(args.logits + t * args.experts, args.experts, args.choice.score);
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
    add_statistics_kernel(Statistics args, unsigned blocks) {
  for (int i = 0; i < router_sums; ++i) {
    double mine = threadIdx.x < blocks ? args.partial[threadIdx.x * router_sums + i] : 0;
    mine = block_sum(mine);
    if (threadIdx.x == 0) args.sums[i] += static_cast<float>(mine);
  }
  for (std::int64_t e = threadIdx.x; e < args.experts; e += block_threads) {
    float sum = args.sums[router_sums + e];
    const std::int64_t counted = args.choice.counted(args.topk);
    for (std::int64_t i = 0; i < args.tokens / args.group * counted; ++i) {
      if (args.choice.free_counts && i % counted > 0) continue;  // not what is chosen
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
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const Losses all{args.logits.elements<float>(),
                   args.chosen.elements<std::int32_t>(),
                   args.order,
                   real_tokens(args.real),
                   args.first,
                   args.logits.shape[0],
                   experts,
                   topk,
                   args.group,
                   args.choice,
                   args.choices.elements<std::int32_t>(),
                   args.balance_factor,
                   args.z_factor,
                   args.d_logits.elements<float>(),
                   args.state};
  launch(losses_kernel, token_grid(all.tokens), stream_of(context), all);
}

void router_statistics(const OpContext& context, const RouterStatistics& args) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const Statistics all{args.logits.elements<float>(),
                       args.chosen.elements<std::int32_t>(),
                       args.choices.elements<std::int32_t>(),
                       args.order,
                       real_tokens(args.real),
                       args.logits.shape[0],
                       experts,
                       topk,
                       args.group,
                       args.choice,
                       reinterpret_cast<double*>(context.scratch),
                       args.sums.elements<float>()};
  const dim3 blocks = blocks_for(all.tokens, block_threads, most_partial);
  launch(partial_kernel, {blocks, dim3(block_threads)}, stream_of(context), all);
  launch(add_statistics_kernel, {dim3(1), dim3(block_threads)}, stream_of(context), all, blocks.x);
}

}  // namespace trainctl::cuda
