#include "ops/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

double log_sum_exp(const float* logits, std::int64_t experts) {
  double most = logits[0];
  for (std::int64_t e = 1; e < experts; ++e) most = std::max<double>(most, logits[e]);
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) sum += std::exp(logits[e] - most);
  return most + std::log(sum);
}

std::int32_t expert_of(std::int32_t chosen) { return chosen < 0 ? ~chosen : chosen; }

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// The weights of a token's choices, before the scaling: exp(logit) or sigmoid(logit), over `sum`.
/// What exp would overflow with is divided out.
class Weights {
 public:
  Weights(const float* logits, std::int64_t experts, const std::int32_t* chosen, std::int64_t topk,
          RouterScore score)
      : logits_(logits), score_(score) {
    if (score == RouterScore::softmax_all) {
      norm_ = log_sum_exp(logits, experts);
    } else if (score == RouterScore::softmax_chosen) {
      const double most = logits[expert_of(chosen[0])];
      double sum = 0;
      for (std::int64_t j = 0; j < topk; ++j) sum += std::exp(logits[expert_of(chosen[j])] - most);
      norm_ = most + std::log(sum);
    } else if (topk > 1) {
      norm_ = least_sum;
      for (std::int64_t j = 0; j < topk; ++j) norm_ += sigmoid(logits[expert_of(chosen[j])]);
    } else {
      norm_ = 1;
    }
  }
  double of(std::int64_t expert) const {
    return score_ == RouterScore::sigmoid ? sigmoid(logits_[expert]) / norm_
                                          : std::exp(logits_[expert] - norm_);
  }

 private:
  static constexpr double least_sum = 1e-20;
  const float* logits_;
  RouterScore score_;
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

/// What the choice compares: the score of an expert, or a very small one outside the best groups.
class Ranking {
 public:
  Ranking(const float* logits, std::int64_t experts, const float* bias, const RouterChoice& choice)
      : logits_(logits),
        bias_(bias),
        score_(choice.score),
        size_(experts / choice.groups),
        most_(*std::max_element(logits, logits + experts)) {}

  double of(std::int64_t e) const {
    if (score_ != RouterScore::sigmoid) return logits_[e];
    return sigmoid(logits_[e]) + (bias_ != nullptr ? bias_[e] : 0);
  }
  /// What the sums of groups add up.
  double summed(std::int64_t e) const {
    return score_ == RouterScore::softmax_all ? std::exp(logits_[e] - most_) : of(e);
  }
  std::int64_t size() const { return size_; }

  /// The best expert of [begin, end) that is not among the first `taken` chosen; -1 if there is
  /// none.
  std::int32_t best(std::int64_t begin, std::int64_t end, const std::int32_t* chosen,
                    std::int64_t taken) const {
    std::int32_t best = -1;
    double most = 0;
    for (std::int64_t e = begin; e < end; ++e) {
      if (std::find(chosen, chosen + taken, e) != chosen + taken) continue;
      const double value = of(e);
      if (best >= 0 && value <= most) continue;
      best = static_cast<std::int32_t>(e);
      most = value;
    }
    return best;
  }
  /// The sum of the `count` best of a group; `chosen` is scratch of so many.
  double sum_of_best(std::int64_t group, std::int64_t count, std::int32_t* chosen) const {
    double sum = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      chosen[j] = best(group * size_, (group + 1) * size_, chosen, j);
      sum += summed(chosen[j]);
    }
    return sum;
  }

 private:
  const float* logits_;
  const float* bias_;
  RouterScore score_;
  std::int64_t size_;
  double most_;
};

/// The k best of all experts.
void choose(const Ranking& ranking, std::int64_t experts, std::int32_t* chosen, std::int64_t topk) {
  for (std::int64_t j = 0; j < topk; ++j) chosen[j] = ranking.best(0, experts, chosen, j);
}

/// Scratch of a token while its experts are chosen: memory for one number for each choice.
struct Groups {
  std::int32_t* best;  // groups, the best first
  float* sum;          // theirs
};

/// The group_topk best groups: those with the largest sums, of equal ones the first.
void choose_groups(const Ranking& ranking, const RouterChoice& choice, std::int32_t* chosen,
                   std::int64_t topk, const Groups& groups) {
  const std::int64_t most = choice.group_topk;
  for (std::int64_t group = 0; group < choice.groups; ++group) {
    const auto sum = static_cast<float>(ranking.sum_of_best(group, topk / most, chosen));
    std::int64_t at = std::min(group, most);
    while (at > 0 && groups.sum[at - 1] < sum) --at;
    if (at == most) continue;
    const std::int64_t last = std::min(group, most - 1);
    std::copy_backward(groups.best + at, groups.best + last, groups.best + last + 1);
    std::copy_backward(groups.sum + at, groups.sum + last, groups.sum + last + 1);
    groups.best[at] = static_cast<std::int32_t>(group);
    groups.sum[at] = sum;
  }
}

/// The k best of the best groups.
void choose_in_groups(const Ranking& ranking, const RouterChoice& choice, std::int32_t* chosen,
                      std::int64_t topk, const Groups& groups) {
  choose_groups(ranking, choice, chosen, topk, groups);
  for (std::int64_t j = 0; j < topk; ++j) {
    std::int32_t most = -1;
    for (std::int64_t i = 0; i < choice.group_topk; ++i) {
      const std::int64_t begin = groups.best[i] * ranking.size();
      const std::int32_t best = ranking.best(begin, begin + ranking.size(), chosen, j);
      if (best < 0) continue;
      const double gain = most < 0 ? 1 : ranking.of(best) - ranking.of(most);
      if (gain > 0 || (gain == 0 && best < most)) most = best;
    }
    chosen[j] = most;
  }
}

/// One routing group, with what the kernel has of it.
struct RoutingGroup {
  std::int64_t first, tokens, topk, experts, capacity;
  const RowOrder& order;
  std::int32_t* chosen;  // of all rows
  const float* weight;
  std::int32_t* slot;  // scratch here, of this group
  const std::int32_t* choices;

  /// Where choice number i of the group's tokens lies, token after token.
  std::int64_t at(std::int64_t i) const { return order.row_of(first + i / topk) * topk + i % topk; }
};

/// First choices before second ones, then earlier tokens. `taken` is scratch of each expert.
void drop_late(const RoutingGroup& g, std::int64_t* taken) {
  std::fill_n(taken, g.experts, 0);
  for (std::int64_t j = 0; j < g.topk; ++j) {
    for (std::int64_t t = 0; t < g.tokens; ++t) {
      std::int32_t& chosen = g.chosen[g.at(t * g.topk + j)];
      if (++taken[chosen] > g.capacity) chosen = ~chosen;
    }
  }
}

/// The largest weights, of equal ones the earlier token. The choices of each expert are listed in
/// the memory of the slots.
void drop_light(const RoutingGroup& g, std::int64_t* end) {
  std::int64_t total = 0;
  for (std::int64_t e = 0; e < g.experts; ++e) {
    end[e] = total;
    total += g.choices[e];
  }
  for (std::int64_t i = 0; i < g.tokens * g.topk; ++i) {
    g.slot[end[g.chosen[g.at(i)]]++] = static_cast<std::int32_t>(i);
  }
  for (std::int64_t e = 0; e < g.experts; ++e) {
    if (g.choices[e] <= g.capacity) continue;
    std::int32_t* last = g.slot + end[e];
    std::int32_t* first = last - g.choices[e];
    std::nth_element(first, first + g.capacity, last, [&](std::int32_t a, std::int32_t b) {
      const float left = g.weight[g.at(a)];
      const float right = g.weight[g.at(b)];
      return left != right ? left > right : a < b;
    });
    for (std::int32_t* late = first + g.capacity; late < last; ++late) {
      std::int32_t& chosen = g.chosen[g.at(*late)];
      chosen = ~chosen;
    }
  }
}

/// Rows expert after expert, in each in the order of this rank's rows; with several chunks, then
/// put into the order of the chunks.
void number_rows(const RouterForward& args) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const std::int64_t first = args.first * topk;
  const std::int64_t count = args.count > 0 ? args.count * topk : args.chosen.numel();
  const std::int32_t* chosen = args.chosen.as<std::int32_t>() + first;
  std::int64_t* counts = args.counts.as<std::int64_t>();
  std::fill_n(counts, experts, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    if (chosen[i] >= 0) ++counts[chosen[i]];
  }
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < experts; ++e) begin += std::exchange(counts[e], begin);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int32_t& slot = args.slot.as<std::int32_t>()[first + i];
    slot = chosen[i] >= 0 ? static_cast<std::int32_t>(counts[chosen[i]]++) : -1;
  }
  for (std::int64_t e = experts - 1; e > 0; --e) counts[e] -= counts[e - 1];
  if (args.chunks == 1) return;
  const RowChunking chunking{counts, experts, args.chunks};
  for (std::int64_t i = 0; i < count; ++i) {
    std::int32_t& slot = args.slot.as<std::int32_t>()[first + i];
    if (slot < 0) continue;
    const std::int64_t before = std::accumulate(counts, counts + chosen[i], std::int64_t{0});
    slot = static_cast<std::int32_t>(chunking.slot_of(chosen[i], slot - before));
  }
}

}  // namespace

void router_forward_plain(const OpContext&, const RouterForward& args) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const RouterChoice& choice = args.choice;
  const float* bias = args.bias.empty() ? nullptr : args.bias.as<float>();
  std::fill_n(args.choices.as<std::int32_t>(), args.choices.numel(), 0);
  for (std::int64_t t = 0; t < args.logits.shape[0]; ++t) {
    const float* logits = args.logits.as<float>() + t * experts;
    std::int32_t* chosen = args.chosen.as<std::int32_t>() + t * topk;
    std::int32_t* choices =
        args.choices.as<std::int32_t>() + args.order.token_of(t) / args.group * experts;
    const Ranking ranking(logits, experts, bias, choice);
    if (choice.group_topk < choice.groups) {
      choose_in_groups(
          ranking, choice, chosen, topk,
          {args.slot.as<std::int32_t>() + t * topk, args.weight.as<float>() + t * topk});
    } else {
      choose(ranking, experts, chosen, topk);
    }
    const Weights weights(logits, experts, chosen, topk, choice.score);
    for (std::int64_t j = 0; j < topk; ++j) {
      args.weight.as<float>()[t * topk + j] =
          static_cast<float>(choice.scaling * weights.of(chosen[j]));
      ++choices[chosen[j]];
    }
  }
  for (std::int64_t i = 0; args.capacity > 0 && i < args.choices.shape[0]; ++i) {
    const RoutingGroup group{i * args.group,
                             args.group,
                             topk,
                             experts,
                             args.capacity,
                             args.order,
                             args.chosen.as<std::int32_t>(),
                             args.weight.as<float>(),
                             args.slot.as<std::int32_t>() + i * args.group * topk,
                             args.choices.as<std::int32_t>() + i * experts};
    std::int64_t* scratch = args.counts.as<std::int64_t>();
    args.by_probability ? drop_light(group, scratch) : drop_late(group, scratch);
  }
  number_rows(args);
}

// With weights w = scaling v: the slope of v_j along its own logit is v_j f_j (1 - v_j) or, where
// v is not divided by a sum of the chosen, v_j f_j; f = 1 - s for sigmoid scores, else 1.
void router_backward_plain(const OpContext&, const RouterBackward& args) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const RouterScore score = args.choice.score;
  const bool by_all = score == RouterScore::softmax_all;
  const bool by_chosen =
      score == RouterScore::softmax_chosen || (score == RouterScore::sigmoid && topk > 1);
  for (std::int64_t t = 0; t < args.logits.shape[0]; ++t) {
    const float* logits = args.logits.as<float>() + t * experts;
    const std::int32_t* chosen = args.chosen.as<std::int32_t>() + t * topk;
    const float* d_weight = args.d_weight.as<float>() + t * topk;
    float* d_logits = args.d_logits.as<float>() + t * experts;
    const Weights weights(logits, experts, chosen, topk, score);
    const double scaling = args.choice.scaling;
    double mean = 0;
    for (std::int64_t j = 0; j < topk; ++j) {
      mean += weights.of(expert_of(chosen[j])) * d_weight[j] * scaling;
    }
    for (std::int64_t e = 0; e < experts; ++e) {
      d_logits[e] = by_all ? static_cast<float>(-weights.of(e) * mean) : 0.0F;
    }
    for (std::int64_t j = 0; j < topk; ++j) {
      const std::int32_t e = expert_of(chosen[j]);
      const double inner = score == RouterScore::sigmoid ? 1 - sigmoid(logits[e]) : 1;
      const double rest = by_chosen ? mean : 0;
      d_logits[e] += static_cast<float>(weights.of(e) * inner * (scaling * d_weight[j] - rest));
    }
  }
}

void router_losses_plain(const OpContext&, const RouterLosses& args) {
  const std::int64_t experts = args.logits.shape[1];
  const double scale = args.state->loss_scale * double{args.state->token_factor};
  const double even = static_cast<double>(experts) / static_cast<double>(args.topk * args.group);
  for (std::int64_t s = 0; s < args.logits.shape[0]; ++s) {
    const float* logits = args.logits.as<float>() + s * experts;
    const std::int32_t* choices = args.choices.as<std::int32_t>() +
                                  args.order.token_of(args.first + s) / args.group * experts;
    const Probabilities p(logits, experts, args.score);
    double mean = 0;  // of the choices, by probability
    for (std::int64_t e = 0; e < experts; ++e) mean += p.of(e) * choices[e];
    for (std::int64_t e = 0; e < experts; ++e) {
      const double balance = args.balance_factor * even * p.slope(e) * (choices[e] - mean);
      const double z = args.z_factor * 2 * p.log_sum() * p.softmax(e);
      args.d_logits.as<float>()[s * experts + e] += static_cast<float>(scale * (balance + z));
    }
  }
}

void router_statistics_plain(const OpContext&, const RouterStatistics& args) {
  const std::int64_t tokens = args.logits.shape[0];
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const double even = static_cast<double>(experts) / static_cast<double>(topk * args.group);
  double balance = 0;
  double z_loss = 0;
  double entropy = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* logits = args.logits.as<float>() + t * experts;
    const std::int32_t* choices =
        args.choices.as<std::int32_t>() + args.order.token_of(t) / args.group * experts;
    const Probabilities p(logits, experts, args.score);
    for (std::int64_t e = 0; e < experts; ++e) {
      const double share = p.of(e);
      balance += even * share * choices[e];
      if (share > 0) entropy -= share * p.log_of(e);
    }
    z_loss += p.log_sum() * p.log_sum();
  }
  float* sums = args.sums.as<float>();
  const auto add = [&](RouterSum sum, double value) {
    sums[static_cast<int>(sum)] += static_cast<float>(value);
  };
  add(RouterSum::balance, balance);
  add(RouterSum::z_loss, z_loss);
  add(RouterSum::entropy, entropy);
  const std::int32_t* chosen = args.chosen.as<std::int32_t>();
  add(RouterSum::dropped,
      static_cast<double>(std::count_if(chosen, chosen + args.chosen.numel(),
                                        [](std::int32_t one) { return one < 0; })));
  for (std::int64_t i = 0; i < args.choices.numel(); ++i) {
    sums[router_sums + i % experts] += static_cast<float>(args.choices.as<std::int32_t>()[i]);
  }
}

}  // namespace trainctl
