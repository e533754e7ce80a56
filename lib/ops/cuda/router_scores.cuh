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

/// The weights of a token's choices, before the scaling: exp(logit) or sigmoid(logit), over `norm`.
struct RouterWeights {
  const float* logits;
  RouterScore score;
  double norm;

  __device__ RouterWeights(const float* of_token, std::int64_t experts, const std::int32_t* chosen,
                           std::int64_t topk, RouterScore kind)
      : logits(of_token), score(kind), norm(1) {
    if (score == RouterScore::softmax_all) {
      norm = log_sum_exp(logits, experts);
    } else if (score == RouterScore::softmax_chosen) {
      const double most = logits[expert_of(chosen[0])];
      double sum = 0;
      for (std::int64_t j = 0; j < topk; ++j) sum += exp(logits[expert_of(chosen[j])] - most);
      norm = most + log(sum);
    } else if (topk > 1) {
      norm = 1e-20;
      for (std::int64_t j = 0; j < topk; ++j) norm += sigmoid(logits[expert_of(chosen[j])]);
    }
  }
  __device__ double of(std::int64_t expert) const {
    return score == RouterScore::sigmoid ? sigmoid(logits[expert]) / norm
                                         : exp(logits[expert] - norm);
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

}  // namespace trainctl::cuda
