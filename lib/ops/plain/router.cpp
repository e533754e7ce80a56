// The router: choices, gradients, losses and statistics.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "ops/plain/kernels.h"
#include "ops/router.h"

namespace trainctl {

// The common functions of the router's kernels.

namespace {

// Scores, weights and probabilities of a token in double, for the router's plain kernels. The
// formulas are in ops/router.h.

inline double log_sum_exp(const float* logits, std::int64_t experts) {
  double most = logits[0];
  for (std::int64_t e = 1; e < experts; ++e) most = std::max<double>(most, logits[e]);
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) sum += std::exp(logits[e] - most);
  return most + std::log(sum);
}

inline std::int32_t expert_of(std::int32_t chosen) { return chosen < 0 ? ~chosen : chosen; }

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Whether `expert` is among the token's kept choices before number `end`.
inline bool has_kept(const std::int32_t* chosen, std::int64_t end, std::int64_t expert) {
  return std::find(chosen, chosen + end, expert) != chosen + end;
}

/// The weights of a token's choices before scaling: exp(logit) or sigmoid(logit) over a sum. A
/// common factor is divided out first, so that exp does not overflow.
class Weights {
 public:
  Weights(const float* logits, std::int64_t experts, const std::int32_t* chosen, std::int64_t topk,
          const RouterChoice& choice)
      : logits_(logits), chosen_(chosen), sigmoid_(choice.sigmoid), weighting_(choice.weighting) {
    const bool by_chosen = weighting_ == ExpertWeights::chosen;
    double most = 0;  // logarithm of the first divisor of scores
    if (!sigmoid_) {
      most = by_chosen ? double{logits[expert_of(chosen[0])]} : log_sum_exp(logits, experts);
    }
    if (weighting_ == ExpertWeights::all) {
      norm_ = sigmoid_ ? 1 : most;
      return;
    }
    double sum = !by_chosen ? min_kept_sum : sigmoid_ ? min_chosen_sum : 0;
    for (std::int64_t j = 0; j < topk; ++j) {
      if (!is_summed(j)) continue;
      const double logit = logits[expert_of(chosen[j])];
      sum += sigmoid_ ? sigmoid(logit) : std::exp(logit - most);
    }
    norm_ = sigmoid_ ? sum : most + std::log(sum);
  }

  /// The weight that an expert has if kept.
  double of(std::int64_t expert) const {
    return sigmoid_ ? sigmoid(logits_[expert]) / norm_ : std::exp(logits_[expert] - norm_);
  }
  /// Whether choice j gets a weight.
  bool has(std::int64_t j) const { return chosen_[j] >= 0 && !is_again(j); }
  /// Whether the sum that divides the weights contains the score of choice j.
  bool is_summed(std::int64_t j) const {
    if (weighting_ == ExpertWeights::all) return false;
    return weighting_ == ExpertWeights::kept ? has(j) : !is_again(j);
  }
  /// The derivative of an expert's log score by its own logit, with other logits fixed.
  double inner(std::int64_t expert) const { return sigmoid_ ? 1 - sigmoid(logits_[expert]) : 1; }
  /// The remaining gradient of an expert's logit through the softmax over all experts, relative to
  /// the mean of the gradients of the weights.
  double rest(std::int64_t expert) const {
    if (sigmoid_ || weighting_ == ExpertWeights::chosen) return 0;
    return of(expert) * (weighting_ == ExpertWeights::kept ? min_kept_sum : 1);
  }

 private:
  bool is_again(std::int64_t j) const { return has_kept(chosen_, j, expert_of(chosen_[j])); }

  const float* logits_;
  const std::int32_t* chosen_;
  bool sigmoid_;
  ExpertWeights weighting_;
  double norm_ = 0;
};

/// p in the losses, and the derivative of p(e) by e's logit with the other terms of the sum fixed.
class Probabilities {
 public:
  Probabilities(const float* logits, std::int64_t experts, bool scores_by_sigmoid)
      : logits_(logits), sigmoid_(scores_by_sigmoid), log_sum_(log_sum_exp(logits, experts)) {
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

inline const std::uint8_t* marks_of(const Tensor& real) {
  return real.empty() ? nullptr : real.as<std::uint8_t>();
}

/// The values of a token's experts that its choice compares.
class Ranking {
 public:
  Ranking(const float* logits, std::int64_t experts, const float* bias, const RouterChoice& choice)
      : logits_(logits),
        bias_(bias),
        sigmoid_(choice.sigmoid),
        sums_logits_(choice.sums_logits),
        size_(experts / choice.groups),
        max_(*std::max_element(logits, logits + experts)) {}

  double of(std::int64_t e) const {
    if (!sigmoid_) return logits_[e];
    return sigmoid(logits_[e]) + (bias_ != nullptr ? bias_[e] : 0);
  }
  /// An expert's term in the sum of its group of experts.
  double summed(std::int64_t e) const {
    return sigmoid_ || sums_logits_ ? of(e) : std::exp(logits_[e] - max_);
  }
  std::int64_t size() const { return size_; }

  /// The best expert in [begin, end) that is not among the first `taken` chosen, or -1 if there is
  /// none.
  std::int32_t best(std::int64_t begin, std::int64_t end, const std::int32_t* chosen,
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
  /// The sum of the `count` best experts of a group; `chosen` is scratch for `count` numbers.
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
  bool sigmoid_;
  bool sums_logits_;
  std::int64_t size_;
  double max_;
};

/// Chooses the k best of all experts.
void choose(const Ranking& ranking, std::int64_t experts, std::int32_t* chosen, std::int64_t topk) {
  for (std::int64_t j = 0; j < topk; ++j) chosen[j] = ranking.best(0, experts, chosen, j);
}

/// Scratch for a token's best groups of experts: one element per choice.
struct Groups {
  std::int32_t* best;  // groups, best first
  float* sum;          // their sums
};

/// Finds the group_topk groups with the largest sums; the first of equal ones wins.
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

/// Chooses the k best experts within the best groups.
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

/// A group of tokens that share the places of experts, with the kernel's data about it.
struct PlaceGroup {
  std::int64_t first, tokens, topk, experts, places;
  const RowOrder& order;
  std::int32_t* chosen;  // choices of all rows
  float* weight;
  std::int32_t* slot;   // slots of this group, used as scratch
  std::int64_t* taken;  // scratch, one per expert

  std::int64_t choices() const { return tokens * topk; }
  /// The index, among the choices of all rows, of choice i of the group (ordered by token).
  std::int64_t at(std::int64_t i) const { return order.row_of(first + i / topk) * topk + i % topk; }
  /// Like at(), but with i ordered by choice: first choices come before second ones.
  std::int64_t at_position(std::int64_t i) const { return at(i % tokens * topk + i / tokens); }
  void drop(std::int64_t at) const {
    chosen[at] = ~chosen[at];
    weight[at] = 0;
  }
  /// Gives a choice a place if one is left, else drops it.
  void place(std::int64_t at) const {
    if (chosen[at] < 0) return;  // the token is not real
    if (taken[chosen[at]] < places) {
      ++taken[chosen[at]];
    } else {
      drop(at);
    }
  }
};

void drop_late(const PlaceGroup& g, Overflow overflow) {
  const bool by_token = overflow == Overflow::token;
  std::fill_n(g.taken, g.experts, 0);
  for (std::int64_t i = 0; i < g.choices(); ++i) g.place(by_token ? g.at(i) : g.at_position(i));
}

/// Uses the memory of slots to list the choices of each expert.
void drop_light(const PlaceGroup& g) {
  std::int64_t* end = g.taken;
  std::fill_n(end, g.experts, 0);
  for (std::int64_t i = 0; i < g.choices(); ++i) {
    if (g.chosen[g.at(i)] >= 0) ++end[g.chosen[g.at(i)]];
  }
  std::int64_t total = 0;
  for (std::int64_t e = 0; e < g.experts; ++e) total += std::exchange(end[e], total);
  for (std::int64_t i = 0; i < g.choices(); ++i) {
    if (g.chosen[g.at(i)] >= 0) g.slot[end[g.chosen[g.at(i)]]++] = static_cast<std::int32_t>(i);
  }
  for (std::int64_t e = 0; e < g.experts; ++e) {
    std::int32_t* last = g.slot + end[e];
    std::int32_t* first = g.slot + (e > 0 ? end[e - 1] : 0);
    if (last - first <= g.places) continue;
    std::nth_element(first, first + g.places, last, [&](std::int32_t a, std::int32_t b) {
      const float left = g.weight[g.at(a)];
      const float right = g.weight[g.at(b)];
      return left != right ? left > right : a < b;
    });
    for (std::int32_t* late = first + g.places; late < last; ++late) g.drop(g.at(*late));
  }
}

/// A token's choice in one round, by p, in which a logit far below the largest vanishes.
std::int32_t choose_in_round(const float* logits, std::int64_t experts, const std::int32_t* chosen,
                             std::int64_t round) {
  const std::int32_t best = Ranking(logits, experts, nullptr, {}).best(0, experts, chosen, round);
  if (round == 0) return best;
  const double p = std::exp(logits[best] - log_sum_exp(logits, experts));
  return static_cast<float>(p) > 0 ? best : 0;
}

/// Runs all rounds of a group: each token chooses depending on what earlier rounds kept.
void choose_in_rounds(const RouterForward& args, const PlaceGroup& g) {
  std::fill_n(g.taken, g.experts, 0);
  for (std::int64_t i = 0; i < g.choices(); ++i) {
    const std::int64_t round = i / g.tokens;
    const std::int64_t token = g.first + i % g.tokens;
    const std::int64_t row = args.order.row_of(token);
    std::int32_t* chosen = g.chosen + row * g.topk;
    if (!is_counted(marks_of(args.real), token)) {
      chosen[round] = ~0;
      continue;
    }
    chosen[round] =
        choose_in_round(args.logits.as<float>() + row * g.experts, g.experts, chosen, round);
    const std::int64_t counted = token / args.group * g.topk + round;
    ++args.choices.as<std::int32_t>()[counted * g.experts + chosen[round]];
    g.place(row * g.topk + round);
  }
}

/// Computes the weights of a token's choices.
void weigh(const RouterForward& args, std::int64_t row, const RouterChoice& choice) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const std::int32_t* chosen = args.chosen.as<std::int32_t>() + row * topk;
  const Weights weights(args.logits.as<float>() + row * experts, experts, chosen, topk, choice);
  for (std::int64_t j = 0; j < topk; ++j) {
    args.weight.as<float>()[row * topk + j] =
        weights.has(j) ? static_cast<float>(choice.scaling * weights.of(chosen[j])) : 0;
  }
}

/// Makes the choices of a token and counts them for its routing group.
void choose_for(const RouterForward& args, std::int64_t row) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const RouterChoice& choice = args.choice;
  const float* logits = args.logits.as<float>() + row * experts;
  std::int32_t* chosen = args.chosen.as<std::int32_t>() + row * topk;
  const std::int64_t token = args.order.token_of(row);
  if (!is_counted(marks_of(args.real), token)) {
    std::fill_n(chosen, topk, ~0);
    return;
  }
  std::int32_t* slot = args.slot.as<std::int32_t>() + row * topk;
  std::int32_t* counted =
      args.choices.as<std::int32_t>() + token / args.group * choice.counted(topk) * experts;
  const Ranking ranking(logits, experts, args.bias.empty() ? nullptr : args.bias.as<float>(),
                        choice);
  if (choice.group_topk < choice.groups) {
    choose_in_groups(ranking, choice, chosen, topk, {slot, args.weight.as<float>() + row * topk});
  } else {
    choose(ranking, experts, chosen, topk);
  }
  for (std::int64_t j = 0; j < topk; ++j) ++counted[chosen[j]];
  if (!choice.free_counts) return;
  choose(Ranking(logits, experts, nullptr, {}), experts, slot, topk);
  for (std::int64_t j = 0; j < topk; ++j) ++counted[experts + slot[j]];
}

/// Calls body(PlaceGroup) for each group of tokens that share places.
template <class Body>
void for_place_groups(const RouterForward& args, const Body& body) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const RouterCapacity& capacity = args.capacity;
  const std::int64_t tokens = capacity.factor > 0 ? capacity.group : args.group;
  const std::uint8_t* real = marks_of(args.real);
  for (std::int64_t first = 0; first < args.logits.shape[0]; first += tokens) {
    std::int64_t sharing = 0;
    for (std::int64_t token = first; token < first + tokens; ++token)
      sharing += is_counted(real, token);
    const std::int64_t places = capacity.factor > 0
                                    ? expert_places(capacity.factor, topk, experts, sharing)
                                    : topk * sharing;
    body(PlaceGroup{first, tokens, topk, experts, places, args.order,
                    args.chosen.as<std::int32_t>(), args.weight.as<float>(),
                    args.slot.as<std::int32_t>() + first * topk, args.counts.as<std::int64_t>()});
  }
}

/// Numbers the choices' rows by expert, then in the order of this rank's rows; with several chunks,
/// reorders them by chunk.
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
  for (std::int64_t i = 0; i < count; ++i) {
    std::int32_t& slot = args.slot.as<std::int32_t>()[first + i];
    if (slot < 0) continue;
    const std::int64_t before = std::accumulate(counts, counts + chosen[i], std::int64_t{0});
    slot =
        static_cast<std::int32_t>(slot_of(counts, experts, args.chunks, chosen[i], slot - before));
  }
}

}  // namespace

void router_forward_plain(const OpContext&, const RouterForward& args) {
  const std::int64_t rows = args.logits.shape[0];
  const RouterChoice& choice = args.choice;
  RouterChoice before = choice;  // for weights until it is known which choices are dropped
  const bool by_kept = choice.weighting == ExpertWeights::kept;
  if (by_kept) before.weighting = ExpertWeights::all;
  std::fill_n(args.choices.as<std::int32_t>(), args.choices.numel(), 0);
  if (choice.rounds) {
    for_place_groups(args, [&](const PlaceGroup& g) { choose_in_rounds(args, g); });
  } else {
    for (std::int64_t row = 0; row < rows; ++row) {
      choose_for(args, row);
      weigh(args, row, before);
    }
    if (args.capacity.factor > 0) {
      const Overflow overflow = args.capacity.overflow;
      for_place_groups(args, [&](const PlaceGroup& g) {
        overflow == Overflow::probability ? drop_light(g) : drop_late(g, overflow);
      });
    }
  }
  for (std::int64_t row = 0; (by_kept || choice.rounds) && row < rows; ++row) {
    weigh(args, row, choice);
  }
  number_rows(args);
}

namespace {

/// A term of a token's balance loss: the mean, weighted by p, of the choices counted for the token;
/// or, for round `number`, weighted by q = p m / S.
class Balance {
 public:
  Balance(const Probabilities& p, std::int64_t experts, const std::int32_t* choices)
      : p_(p), choices_(choices) {
    for (std::int64_t e = 0; e < experts; ++e) mean_ += p.of(e) * choices[e];
  }
  Balance(const Probabilities& p, std::int64_t experts, const std::int32_t* choices,
          const std::int32_t* chosen, std::int64_t number)
      : p_(p), choices_(choices), chosen_(chosen), number_(number), sum_(min_kept_sum) {
    for (std::int64_t e = 0; e < experts; ++e) sum_ += left(e);
    for (std::int64_t e = 0; e < experts; ++e) mean_ += left(e) / sum_ * choices[e];
  }
  double mean() const { return mean_; }
  /// The derivative of the mean by e's logit. q does not sum to 1, because S has one more term.
  double slope(std::int64_t e) const {
    if (chosen_ == nullptr) return p_.slope(e) * (choices_[e] - mean_);
    return (left(e) * (choices_[e] - mean_) - p_.of(e) * mean_ * min_kept_sum) / sum_;
  }

 private:
  double left(std::int64_t e) const { return has_kept(chosen_, number_, e) ? 0 : p_.of(e); }

  const Probabilities& p_;
  const std::int32_t* choices_;
  const std::int32_t* chosen_ = nullptr;  // only with rounds
  std::int64_t number_ = 0;
  double sum_ = 1;
  double mean_ = 0;
};

/// Calls body(Balance) for each term of a token. `choices` are those counted for its group, from
/// the first row of RouterChoice::counted on.
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

/// The factor of Balance::mean(): experts / counted choices, which is equal for all terms of a
/// group. `choices` is as in for_balance.
double even_share(const std::int32_t* choices, std::int64_t experts) {
  const std::int64_t counted = std::accumulate(choices, choices + experts, std::int64_t{0});
  return static_cast<double>(experts) / static_cast<double>(counted);
}

}  // namespace

// With weights w = scaling v, the derivative of v_j by its own logit is v_j f_j (1 - v_j), or v_j
// f_j if no sum of choices divides v; f = 1 - s for sigmoid scores, else 1.
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
  const std::uint8_t* real = marks_of(args.real);
  for (std::int64_t s = 0; s < args.logits.shape[0]; ++s) {
    const std::int64_t token = args.order.token_of(args.first + s);
    if (!is_counted(real, token)) continue;
    const std::int32_t* choices =
        args.choices.as<std::int32_t>() + token / args.group * choice.counted(topk) * experts;
    const double even = even_share(choices, experts);
    const Probabilities p(args.logits.as<float>() + s * experts, experts, choice.sigmoid);
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

void router_statistics_plain(const OpContext&, const RouterLosses& args) {
  const std::int64_t tokens = args.logits.shape[0];
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const RouterChoice& choice = args.choice;
  const std::int64_t counted = choice.counted(topk) * experts;  // elements per group
  const std::uint8_t* real = marks_of(args.real);
  const std::int32_t* chosen = args.chosen.as<std::int32_t>();
  const std::int32_t* choices = args.choices.as<std::int32_t>();
  double balance = 0;
  double z_loss = 0;
  double entropy = 0;
  double dropped = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t token = args.order.token_of(t);
    if (!is_counted(real, token)) continue;
    const std::int32_t* of_group = choices + token / args.group * counted;
    const double even = even_share(of_group, experts);
    const Probabilities p(args.logits.as<float>() + t * experts, experts, choice.sigmoid);
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
  const std::int64_t made = choice.free_counts ? experts : counted;  // elements per group: actual
                                                                     // choices
  for (std::int64_t i = 0; i < args.choices.numel(); ++i) {
    if (i % counted < made) sums[router_sums + i % experts] += static_cast<float>(choices[i]);
  }
}

}  // namespace trainctl
