// The router's gradients, and what it adds up.
#include <algorithm>
#include <numeric>

#include "ops/plain/kernels.h"
#include "ops/plain/router_scores.h"

namespace trainctl {

namespace {

/// A term of the balance loss of a token: the mean of the choices that are counted for it, by p;
/// or, for round `number`, by q = p m / S.
class Balance {
 public:
  Balance(const Probabilities& p, std::int64_t experts, const std::int32_t* choices)
      : p_(p), choices_(choices) {
    for (std::int64_t e = 0; e < experts; ++e) mean_ += p.of(e) * choices[e];
  }
  Balance(const Probabilities& p, std::int64_t experts, const std::int32_t* choices,
          const std::int32_t* chosen, std::int64_t number)
      : p_(p), choices_(choices), chosen_(chosen), number_(number), sum_(least_kept_sum) {
    for (std::int64_t e = 0; e < experts; ++e) sum_ += left(e);
    for (std::int64_t e = 0; e < experts; ++e) mean_ += left(e) / sum_ * choices[e];
  }
  double mean() const { return mean_; }
  /// Its slope along the logit of e. What S has beside p m keeps q from adding up to 1.
  double slope(std::int64_t e) const {
    if (chosen_ == nullptr) return p_.slope(e) * (choices_[e] - mean_);
    return (left(e) * (choices_[e] - mean_) - p_.of(e) * mean_ * least_kept_sum) / sum_;
  }

 private:
  double left(std::int64_t e) const { return has_kept(chosen_, number_, e) ? 0 : p_.of(e); }

  const Probabilities& p_;
  const std::int32_t* choices_;
  const std::int32_t* chosen_ = nullptr;  // with rounds
  std::int64_t number_ = 0;
  double sum_ = 1;
  double mean_ = 0;
};

/// Calls body(Balance) for each term of a token. `choices` are those of its group, from the first
/// row of `counted` on.
template <class Body>
void for_balance(const RouterChoice& choice, const Probabilities& p, std::int64_t experts,
                 std::int64_t topk, const std::int32_t* chosen, const std::int32_t* choices,
                 const Body& body) {
  if (!choice.rounds)
    return body(Balance(p, experts, choices + (choice.free_counts ? experts : 0)));
  for (std::int64_t j = 0; j < topk; ++j) {
    body(Balance(p, experts, choices + j * experts, chosen, j));
  }
}

/// What Balance::mean() is multiplied by: experts over the choices that are counted for a term,
/// which are as many in each of a group. `choices` as in for_balance.
double even_share(const std::int32_t* choices, std::int64_t experts) {
  const std::int64_t counted = std::accumulate(choices, choices + experts, std::int64_t{0});
  return static_cast<double>(experts) / static_cast<double>(counted);
}

}  // namespace

// With weights w = scaling v: the slope of v_j along its own logit is v_j f_j (1 - v_j) or, where
// v is not divided by a sum of choices, v_j f_j; f = 1 - s for sigmoid scores, else 1.
void router_backward_plain(const OpContext&, const RouterBackward& args) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  for (std::int64_t t = 0; t < args.logits.shape[0]; ++t) {
    const float* logits = args.logits.as<float>() + t * experts;
    const std::int32_t* chosen = args.chosen.as<std::int32_t>() + t * topk;
    const float* d_weight = args.d_weight.as<float>() + t * topk;
    float* d_logits = args.d_logits.as<float>() + t * experts;
    const Weights weights(logits, experts, chosen, topk, args.choice);
    const double scaling = args.choice.scaling;
    double mean = 0;
    for (std::int64_t j = 0; j < topk; ++j) {
      if (weights.has(j)) mean += weights.of(chosen[j]) * d_weight[j] * scaling;
    }
    for (std::int64_t e = 0; e < experts; ++e) {
      d_logits[e] = static_cast<float>(-weights.rest(e) * mean);
    }
    for (std::int64_t j = 0; j < topk; ++j) {
      const std::int32_t e = expert_of(chosen[j]);
      const double own = weights.has(j) ? scaling * d_weight[j] : 0;
      const double of_sum = weights.is_summed(j) ? mean : 0;
      d_logits[e] += static_cast<float>(weights.of(e) * weights.inner(e) * (own - of_sum));
    }
  }
}

void router_losses_plain(const OpContext&, const RouterLosses& args) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const RouterChoice& choice = args.choice;
  const double scale = args.state->loss_scale * double{args.state->token_factor};
  const RealTokens real = real_tokens(args.real);
  for (std::int64_t s = 0; s < args.logits.shape[0]; ++s) {
    const std::int64_t token = args.order.token_of(args.first + s);
    if (!real.has(token)) continue;
    const std::int32_t* choices =
        args.choices.as<std::int32_t>() + token / args.group * choice.counted(topk) * experts;
    const double even = even_share(choices, experts);
    const Probabilities p(args.logits.as<float>() + s * experts, experts, choice.score);
    float* d_logits = args.d_logits.as<float>() + s * experts;
    const auto add = [&](std::int64_t e, double slope) {
      d_logits[e] += static_cast<float>(scale * slope);
    };
    for_balance(choice, p, experts, topk, args.chosen.as<std::int32_t>() + s * topk, choices,
                [&](const Balance& balance) {
                  for (std::int64_t e = 0; e < experts; ++e) {
                    add(e, args.balance_factor * even * balance.slope(e));
                  }
                });
    for (std::int64_t e = 0; args.z_factor != 0 && e < experts; ++e) {
      add(e, args.z_factor * 2 * p.log_sum() * p.softmax(e));
    }
  }
}

void router_statistics_plain(const OpContext&, const RouterStatistics& args) {
  const std::int64_t tokens = args.logits.shape[0];
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const RouterChoice& choice = args.choice;
  const std::int64_t counted = choice.counted(topk) * experts;  // of a group
  const RealTokens real = real_tokens(args.real);
  const std::int32_t* chosen = args.chosen.as<std::int32_t>();
  const std::int32_t* choices = args.choices.as<std::int32_t>();
  double balance = 0;
  double z_loss = 0;
  double entropy = 0;
  double dropped = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t token = args.order.token_of(t);
    if (!real.has(token)) continue;
    const std::int32_t* of_group = choices + token / args.group * counted;
    const double even = even_share(of_group, experts);
    const Probabilities p(args.logits.as<float>() + t * experts, experts, choice.score);
    for_balance(choice, p, experts, topk, chosen + t * topk, of_group,
                [&](const Balance& term) { balance += even * term.mean(); });
    for (std::int64_t e = 0; e < experts; ++e) {
      const double share = p.of(e);
      if (share > 0) entropy -= share * p.log_of(e);
    }
    z_loss += p.log_sum() * p.log_sum();
    dropped += static_cast<double>(std::count_if(chosen + t * topk, chosen + (t + 1) * topk,
                                                 [](std::int32_t one) { return one < 0; }));
  }
  float* sums = args.sums.as<float>();
  const auto add = [&](RouterSum sum, double value) {
    sums[static_cast<int>(sum)] += static_cast<float>(value);
  };
  add(RouterSum::balance, balance);
  add(RouterSum::z_loss, z_loss);
  add(RouterSum::entropy, entropy);
  add(RouterSum::dropped, dropped);
  const std::int64_t made = choice.free_counts ? experts : counted;  // of a group: real choices
  for (std::int64_t i = 0; i < args.choices.numel(); ++i) {
    if (i % counted < made) sums[router_sums + i % experts] += static_cast<float>(choices[i]);
  }
}

}  // namespace trainctl
