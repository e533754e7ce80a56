#include "ops/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "ops/plain/kernels.h"
#include "ops/plain/router_scores.h"

namespace trainctl {

namespace {

/// What the choice compares: the score of an expert, or a very small one outside the best groups.
class Ranking {
 public:
  Ranking(const float* logits, std::int64_t experts, const float* bias, const RouterChoice& choice)
      : logits_(logits),
        bias_(bias),
        sigmoid_(choice.score == RouterScore::sigmoid),
        sums_logits_(choice.sums_logits),
        size_(experts / choice.groups),
        most_(*std::max_element(logits, logits + experts)) {}

  double of(std::int64_t e) const {
    if (!sigmoid_) return logits_[e];
    return sigmoid(logits_[e]) + (bias_ != nullptr ? bias_[e] : 0);
  }
  /// What the sums of groups add up.
  double summed(std::int64_t e) const {
    return sigmoid_ || sums_logits_ ? of(e) : std::exp(logits_[e] - most_);
  }
  std::int64_t size() const { return size_; }

  /// The best expert of [begin, end) that is not among the first `taken` chosen; -1 if there is
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
  bool sigmoid_;
  bool sums_logits_;
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

/// A group of tokens that share the places of the experts, with what the kernel has of it.
struct PlaceGroup {
  std::int64_t first, tokens, topk, experts, places;
  const RowOrder& order;
  std::int32_t* chosen;  // of all rows
  float* weight;
  std::int32_t* slot;   // scratch here, of this group
  std::int64_t* taken;  // scratch of each expert

  std::int64_t choices() const { return tokens * topk; }
  /// Where choice number i of the group's tokens lies, token after token.
  std::int64_t at(std::int64_t i) const { return order.row_of(first + i / topk) * topk + i % topk; }
  /// The same, first choices before second ones.
  std::int64_t at_position(std::int64_t i) const { return at(i % tokens * topk + i / tokens); }
  void drop(std::int64_t at) const {
    chosen[at] = ~chosen[at];
    weight[at] = 0;
  }
  /// A choice finds a place, or is dropped.
  void place(std::int64_t at) const {
    if (chosen[at] < 0) return;  // of a token that is not real
    if (taken[chosen[at]] < places) {
      ++taken[chosen[at]];
    } else {
      drop(at);
    }
  }
};

void drop_late(const PlaceGroup& g, RouterOverflow overflow) {
  const bool by_token = overflow == RouterOverflow::token;
  std::fill_n(g.taken, g.experts, 0);
  for (std::int64_t i = 0; i < g.choices(); ++i) g.place(by_token ? g.at(i) : g.at_position(i));
}

/// The choices of each expert are listed in the memory of the slots.
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

/// The choice of a token in a round: by p, which a logit far below the others leaves nothing of.
std::int32_t choose_in_round(const float* logits, std::int64_t experts, const std::int32_t* chosen,
                             std::int64_t round) {
  const std::int32_t best = Ranking(logits, experts, nullptr, {}).best(0, experts, chosen, round);
  if (round == 0) return best;
  const double p = std::exp(logits[best] - log_sum_exp(logits, experts));
  return static_cast<float>(p) > 0 ? best : 0;
}

/// All rounds of a group: each token chooses by what the rounds before have kept.
void choose_in_rounds(const RouterForward& args, const PlaceGroup& g) {
  std::fill_n(g.taken, g.experts, 0);
  for (std::int64_t i = 0; i < g.choices(); ++i) {
    const std::int64_t round = i / g.tokens;
    const std::int64_t token = g.first + i % g.tokens;
    const std::int64_t row = args.order.row_of(token);
    std::int32_t* chosen = g.chosen + row * g.topk;
    if (!real_tokens(args.real).has(token)) {
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

/// The weights of a token's choices.
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

/// The choices of a token, and how they count in its routing group.
void choose_for(const RouterForward& args, std::int64_t row) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const RouterChoice& choice = args.choice;
  const float* logits = args.logits.as<float>() + row * experts;
  std::int32_t* chosen = args.chosen.as<std::int32_t>() + row * topk;
  const std::int64_t token = args.order.token_of(row);
  if (!real_tokens(args.real).has(token)) {
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

/// Calls body(PlaceGroup) for the groups that share places.
template <class Body>
void for_place_groups(const RouterForward& args, const Body& body) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const RouterCapacity& capacity = args.capacity;
  const std::int64_t tokens = capacity.factor > 0 ? capacity.group : args.group;
  const RealTokens real = real_tokens(args.real);
  for (std::int64_t first = 0; first < args.logits.shape[0]; first += tokens) {
    std::int64_t sharing = 0;
    for (std::int64_t token = first; token < first + tokens; ++token) sharing += real.has(token);
    const std::int64_t places = capacity.factor > 0
                                    ? expert_places(capacity.factor, topk, experts, sharing)
                                    : topk * sharing;
    body(PlaceGroup{first, tokens, topk, experts, places, args.order,
                    args.chosen.as<std::int32_t>(), args.weight.as<float>(),
                    args.slot.as<std::int32_t>() + first * topk, args.counts.as<std::int64_t>()});
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
  const std::int64_t rows = args.logits.shape[0];
  const RouterChoice& choice = args.choice;
  RouterChoice before = choice;  // for the weights until it is known who is dropped
  const bool by_kept = choice.weighting == RouterWeighting::kept;
  if (by_kept) before.weighting = RouterWeighting::all;
  std::fill_n(args.choices.as<std::int32_t>(), args.choices.numel(), 0);
  if (choice.rounds) {
    for_place_groups(args, [&](const PlaceGroup& g) { choose_in_rounds(args, g); });
  } else {
    for (std::int64_t row = 0; row < rows; ++row) {
      choose_for(args, row);
      weigh(args, row, before);
    }
    if (args.capacity.factor > 0) {
      const RouterOverflow overflow = args.capacity.overflow;
      for_place_groups(args, [&](const PlaceGroup& g) {
        overflow == RouterOverflow::probability ? drop_light(g) : drop_late(g, overflow);
      });
    }
  }
  for (std::int64_t row = 0; (by_kept || choice.rounds) && row < rows; ++row) {
    weigh(args, row, choice);
  }
  number_rows(args);
}

}  // namespace trainctl
