// Scores, weights and probabilities of a token as the plain kernels of the router need them, in
// double. The formulas are those of ops/router.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/router.h"

namespace trainctl {

inline double log_sum_exp(const float* logits, std::int64_t experts) {
  double most = logits[0];
  for (std::int64_t e = 1; e < experts; ++e) most = std::max<double>(most, logits[e]);
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) sum += std::exp(logits[e] - most);
  return most + std::log(sum);
}

inline std::int32_t expert_of(std::int32_t chosen) { return chosen < 0 ? ~chosen : chosen; }

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Whether a choice before number `end` of a token has kept `expert`.
inline bool has_kept(const std::int32_t* chosen, std::int64_t end, std::int64_t expert) {
  return std::find(chosen, chosen + end, expert) != chosen + end;
}

/// The weights of a token's choices, before the scaling: exp(logit) or sigmoid(logit), over a sum.
/// What exp would overflow with is divided out.
class Weights {
 public:
  Weights(const float* logits, std::int64_t experts, const std::int32_t* chosen, std::int64_t topk,
          const RouterChoice& choice)
      : logits_(logits),
        chosen_(chosen),
        sigmoid_(choice.score == RouterScore::sigmoid),
        weighting_(choice.weighting) {
    const bool by_chosen = weighting_ == RouterWeighting::chosen;
    double most = 0;  // the logarithm of what scores are divided by first
    if (!sigmoid_) {
      most = by_chosen ? double{logits[expert_of(chosen[0])]} : log_sum_exp(logits, experts);
    }
    if (weighting_ == RouterWeighting::all) {
      norm_ = sigmoid_ ? 1 : most;
      return;
    }
    double sum = !by_chosen ? least_kept_sum : sigmoid_ ? least_chosen_sum : 0;
    for (std::int64_t j = 0; j < topk; ++j) {
      if (!is_summed(j)) continue;
      const double logit = logits[expert_of(chosen[j])];
      sum += sigmoid_ ? sigmoid(logit) : std::exp(logit - most);
    }
    norm_ = sigmoid_ ? sum : most + std::log(sum);
  }

  /// Of an expert, as if it were kept.
  double of(std::int64_t expert) const {
    return sigmoid_ ? sigmoid(logits_[expert]) / norm_ : std::exp(logits_[expert] - norm_);
  }
  /// Whether choice j has a weight.
  bool has(std::int64_t j) const { return chosen_[j] >= 0 && !is_again(j); }
  /// Whether the score of choice j is in the sum that weights are divided by.
  bool is_summed(std::int64_t j) const {
    if (weighting_ == RouterWeighting::all) return false;
    return weighting_ == RouterWeighting::kept ? has(j) : !is_again(j);
  }
  /// The slope of log score of an expert along its own logit, where the others stay.
  double inner(std::int64_t expert) const { return sigmoid_ ? 1 - sigmoid(logits_[expert]) : 1; }
  /// What the softmax over all experts leaves in the gradient of an expert: its part of the mean of
  /// the gradients of the weights.
  double rest(std::int64_t expert) const {
    if (sigmoid_ || weighting_ == RouterWeighting::chosen) return 0;
    return of(expert) * (weighting_ == RouterWeighting::kept ? least_kept_sum : 1);
  }

 private:
  bool is_again(std::int64_t j) const { return has_kept(chosen_, j, expert_of(chosen_[j])); }

  const float* logits_;
  const std::int32_t* chosen_;
  bool sigmoid_;
  RouterWeighting weighting_;
  double norm_ = 0;
};

/// p of the losses: p(e), and its slope along the logit of e where the others of the sum stay.
class Probabilities {
 public:
  Probabilities(const float* logits, std::int64_t experts, RouterScore score)
      : logits_(logits),
        sigmoid_(score == RouterScore::sigmoid),
        log_sum_(log_sum_exp(logits, experts)) {
    for (std::int64_t e = 0; sigmoid_ && e < experts; ++e) sum_ += sigmoid(logits[e]);
  }
  double log_sum() const { return log_sum_; }
  double softmax(std::int64_t e) const { return std::exp(logits_[e] - log_sum_); }
  double of(std::int64_t e) const { return sigmoid_ ? sigmoid(logits_[e]) / sum_ : softmax(e); }
  double slope(std::int64_t e) const {
    return sigmoid_ ? of(e) * (1 - sigmoid(logits_[e])) : softmax(e);
  }
  double log_of(std::int64_t e) const { return sigmoid_ ? std::log(of(e)) : logits_[e] - log_sum_; }

 private:
  const float* logits_;
  bool sigmoid_;
  double log_sum_;
  double sum_ = 0;
};

inline RealTokens real_tokens(const Tensor& real) {
  return {real.empty() ? nullptr : real.as<std::uint8_t>()};
}

}  // namespace trainctl
