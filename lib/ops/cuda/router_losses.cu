// The router's gradients, and what it adds up: a thread to a token.
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/router_scores.cuh"

namespace trainctl::cuda {
namespace {

struct RouterLossArrays {
  const float* logits;
  const std::int32_t* chosen;
  const float* d_weight;
  float* d_logits;
  std::int64_t tokens, experts, topk;
  RouterChoice choice;
};

// With weights w = scaling v: the slope of v_j along its own logit is v_j f_j (1 - v_j) or, where v
// is not divided by a sum of the chosen, v_j f_j; f = 1 - s for sigmoid scores, else 1.
__global__ void __launch_bounds__(block_threads) router_backward_kernel(RouterLossArrays args) {
  const std::int64_t t = grid_thread();
  if (t >= args.tokens) return;
  const RouterScore score = args.choice.score;
  const bool by_all = score == RouterScore::softmax_all;
  const bool by_chosen =
      score == RouterScore::softmax_chosen || (score == RouterScore::sigmoid && args.topk > 1);
  const float* logits = args.logits + t * args.experts;
  const std::int32_t* chosen = args.chosen + t * args.topk;
  const float* d_weight = args.d_weight + t * args.topk;
  float* d_logits = args.d_logits + t * args.experts;
  const RouterWeights weights(logits, args.experts, chosen, args.topk, score);
  const double scaling = args.choice.scaling;
  double mean = 0;
  for (std::int64_t j = 0; j < args.topk; ++j) {
    mean += weights.of(expert_of(chosen[j])) * d_weight[j] * scaling;
  }
  for (std::int64_t e = 0; e < args.experts; ++e) {
    d_logits[e] = by_all ? static_cast<float>(-weights.of(e) * mean) : 0.0F;
  }
  for (std::int64_t j = 0; j < args.topk; ++j) {
    const std::int32_t e = expert_of(chosen[j]);
    const double inner = score == RouterScore::sigmoid ? 1 - sigmoid(logits[e]) : 1;
    const double rest = by_chosen ? mean : 0;
    d_logits[e] += static_cast<float>(weights.of(e) * inner * (scaling * d_weight[j] - rest));
  }
}

struct Losses {
  const float* logits;
  RowOrder order;
  std::int64_t first, tokens, experts, group;
  double even;  // experts / (topk group)
  RouterScore score;
  const std::int32_t* choices;
  float balance_factor, z_factor;
  float* d_logits;
  const StepState* state;
};

__global__ void __launch_bounds__(block_threads) losses_kernel(Losses args) {
  const std::int64_t t = grid_thread();
  if (t >= args.tokens) return;
  const double scale = args.state->loss_scale * double{args.state->token_factor};
  const float* logits = args.logits + t * args.experts;
  const std::int32_t* choices =
      args.choices + args.order.token_of(args.first + t) / args.group * args.experts;
  const RouterProbabilities p(logits, args.experts, args.score);
  double mean = 0;  // of the choices, by probability
  for (std::int64_t e = 0; e < args.experts; ++e) mean += p.of(e) * choices[e];
  for (std::int64_t e = 0; e < args.experts; ++e) {
    const double balance = args.balance_factor * args.even * p.slope(e) * (choices[e] - mean);
    const double z = args.z_factor * 2 * p.log_sum * p.softmax(e);
    args.d_logits[t * args.experts + e] += static_cast<float>(scale * (balance + z));
  }
}

struct Statistics {
  const float* logits;
  const std::int32_t* chosen;
  const std::int32_t* choices;
  RowOrder order;
  std::int64_t tokens, experts, topk, group;
  double even;
  RouterScore score;
  double* partial;  // [blocks, router_sums]
  float* sums;
};

constexpr unsigned most_partial = 256;  // blocks

__global__ void __launch_bounds__(block_threads) partial_kernel(Statistics args) {
  double of[router_sums] = {};
  for (std::int64_t t = grid_thread(); t < args.tokens; t += grid_threads()) {
    const RouterProbabilities p(args.logits + t * args.experts, args.experts, args.score);
    const std::int32_t* choices = args.choices + args.order.token_of(t) / args.group * args.experts;
    for (std::int64_t e = 0; e < args.experts; ++e) {
      const double share = p.of(e);
      of[static_cast<int>(RouterSum::balance)] += args.even * share * choices[e];
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
    for (std::int64_t i = 0; i < args.tokens / args.group; ++i) {
      sum += static_cast<float>(args.choices[i * args.experts + e]);
    }
    args.sums[router_sums + e] = sum;
  }
}

double even_share(std::int64_t experts, std::int64_t topk, std::int64_t group) {
  return static_cast<double>(experts) / static_cast<double>(topk * group);
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
  const Losses all{args.logits.elements<float>(),
                   args.order,
                   args.first,
                   args.logits.shape[0],
                   experts,
                   args.group,
                   even_share(experts, args.topk, args.group),
                   args.score,
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
                       args.logits.shape[0],
                       experts,
                       topk,
                       args.group,
                       even_share(experts, topk, args.group),
                       args.score,
                       reinterpret_cast<double*>(context.scratch),
                       args.sums.elements<float>()};
  const dim3 blocks = blocks_for(all.tokens, block_threads, most_partial);
  launch(partial_kernel, {blocks, dim3(block_threads)}, stream_of(context), all);
  launch(add_statistics_kernel, {dim3(1), dim3(block_threads)}, stream_of(context), all, blocks.x);
}

}  // namespace trainctl::cuda
