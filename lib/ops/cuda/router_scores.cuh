// Scores of experts as the router's kernels need them: in double, so that the choices are those of
// the CPU. The formulas are those of ops/router.h.
#pragma once

#include <cstdint>

#include "ops/cuda/device_math.cuh"
#include "ops/router.h"

namespace trainctl::cuda {

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

/// Whether a choice before number `end` of a token has kept `expert`.
__device__ inline bool has_kept(const std::int32_t* chosen, std::int64_t end, std::int64_t expert) {
  for (std::int64_t j = 0; j < end; ++j) {
    if (chosen[j] == expert) return true;
  }
  return false;
}

/// The weights of a token's choices, before the scaling: exp(logit) or sigmoid(logit), over a sum.
struct RouterWeights {
  const float* logits;
  const std::int32_t* chosen;
  bool by_sigmoid;
  RouterWeighting weighting;
  double norm = 1;

  __device__ RouterWeights(const float* of_token, std::int64_t experts, const std::int32_t* choices,
                           std::int64_t topk, const RouterChoice& choice)
      : logits(of_token),
        chosen(choices),
        by_sigmoid(choice.score == RouterScore::sigmoid),
        weighting(choice.weighting) {
    const bool by_chosen = weighting == RouterWeighting::chosen;
    double most = 0;  // the logarithm of what scores are divided by first
    if (!by_sigmoid) {
      most = by_chosen ? double{logits[expert_of(chosen[0])]} : log_sum_exp(logits, experts);
    }
    if (weighting == RouterWeighting::all) {
      norm = by_sigmoid ? 1 : most;
      return;
    }
    double sum = !by_chosen ? least_kept_sum : by_sigmoid ? least_chosen_sum : 0;
    for (std::int64_t j = 0; j < topk; ++j) {
      if (!is_summed(j)) continue;
      const double logit = logits[expert_of(chosen[j])];
      sum += by_sigmoid ? sigmoid(logit) : exp(logit - most);
    }
    norm = by_sigmoid ? sum : most + log(sum);
  }

  /// Of an expert, as if it were kept.
  __device__ double of(std::int64_t expert) const {
    return by_sigmoid ? sigmoid(logits[expert]) / norm : exp(logits[expert] - norm);
  }
  /// Whether choice j has a weight.
  __device__ bool has(std::int64_t j) const { return chosen[j] >= 0 && !is_again(j); }
  /// Whether the score of choice j is in the sum that weights are divided by.
  __device__ bool is_summed(std::int64_t j) const {
    if (weighting == RouterWeighting::all) return false;
    return weighting == RouterWeighting::kept ? has(j) : !is_again(j);
  }
  __device__ bool is_again(std::int64_t j) const {
    return has_kept(chosen, j, expert_of(chosen[j]));
  }
  /// The slope of log score of an expert along its own logit, where the others stay.
  __device__ double inner(std::int64_t expert) const {
    return by_sigmoid ? 1 - sigmoid(logits[expert]) : 1;
  }
  /// What the softmax over all experts leaves in the gradient of an expert: its part of the mean of
  /// the gradients of the weights.
  __device__ double rest(std::int64_t expert) const {
    if (by_sigmoid || weighting == RouterWeighting::chosen) return 0;
    return of(expert) * (weighting == RouterWeighting::kept ? least_kept_sum : 1);
  }
};

/// p of the losses: p(e), and its slope along the logit of e where the others of the sum stay.
struct RouterProbabilities {
  const float* logits;
  bool by_sigmoid;
  double log_sum;
  double sum = 0;

  __device__ RouterProbabilities(const float* of_token, std::int64_t experts, RouterScore score)
      : logits(of_token),
        by_sigmoid(score == RouterScore::sigmoid),
        log_sum(log_sum_exp(of_token, experts)) {
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

inline RealTokens real_tokens(const Tensor& real) {
  return {real.empty() ? nullptr : real.elements<std::uint8_t>()};
}

}  // namespace trainctl::cuda
