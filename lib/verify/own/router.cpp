#include "verify/own/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace trainctl::own {

namespace {

constexpr double nowhere = -std::numeric_limits<double>::infinity();

double log_sum(const std::vector<double>& logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

std::int64_t first_of_largest(const std::vector<double>& values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

auto& at(auto& values, std::int64_t place) { return values[static_cast<std::size_t>(place)]; }

}  // namespace

std::int64_t Router::place(std::int64_t token, std::int64_t round) const {
  return token * moe_.router_topk + round;
}

Router::Values Router::logits_of(const RouterInput& input, std::int64_t token) const {
  const auto row = input.logits.subspan(static_cast<std::size_t>(token * moe_.num_experts),
                                        static_cast<std::size_t>(moe_.num_experts));
  return {row.begin(), row.end()};
}

/// The score of each expert: the sigmoid of its logit, or its softmax probability.
Router::Values Router::scores(const RouterInput& input, std::int64_t token) const {
  Values values = logits_of(input, token);
  const double whole = by_sigmoid() ? 0 : log_sum(values);
  for (double& value : values) {
    value = by_sigmoid() ? 1 / (1 + std::exp(-value)) : std::exp(value - whole);
  }
  return values;
}

/// p in the losses: each score divided by the sum of all scores, which is 1 for a softmax.
Router::Values Router::probabilities(const RouterInput& input, std::int64_t token) const {
  Values values = scores(input, token);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  for (double& value : values) value /= sum;
  return values;
}

ExpertWeights Router::weights() const {
  if (moe_.router_weights) return *moe_.router_weights;
  const bool alone = moe_.router_topk == 1;
  const bool whole = by_sigmoid() ? alone : moe_.router_pre_softmax.value_or(alone);
  return whole ? ExpertWeights::all : ExpertWeights::chosen;
}

/// The number of choices that an expert accepts from a capacity group of tokens.
std::int64_t Router::places(const RouterInput& input, std::int64_t first) const {
  std::int64_t tokens = 0;
  for (std::int64_t t = first; t < first + capacity_group_; ++t) {
    tokens += at(input.real, t) != 0;
  }
  const auto choices = static_cast<double>(tokens * moe_.router_topk);
  if (!moe_.capacity_factor) return tokens * moe_.router_topk;
  const double most = *moe_.capacity_factor * choices / static_cast<double>(moe_.num_experts);
  return static_cast<std::int64_t>(std::ceil(std::min(most, choices)));
}

/// Sets the ranking of all experts outside the best groups to `nowhere`.
void Router::leave_best_groups(const RouterInput& input, std::int64_t token,
                               Values& ranking) const {
  const std::int64_t groups = moe_.router_num_groups;
  const std::int64_t size = moe_.num_experts / groups;
  const bool by_p = !by_sigmoid() && moe_.router_pre_softmax.value_or(moe_.router_topk == 1);
  const Values compared = by_p ? probabilities(input, token) : ranking;
  Values sums;
  for (std::int64_t group = 0; group < groups; ++group) {
    Values own(compared.begin() + group * size, compared.begin() + (group + 1) * size);
    std::ranges::sort(own, std::greater<>());
    const std::int64_t best = moe_.router_topk / moe_.router_group_topk;
    sums.push_back(std::accumulate(own.begin(), own.begin() + best, 0.0));
  }
  Values left(ranking.size(), nowhere);
  for (std::int64_t i = 0; i < moe_.router_group_topk; ++i) {
    const std::int64_t group = first_of_largest(sums);
    at(sums, group) = nowhere;
    std::copy_n(ranking.begin() + group * size, size, left.begin() + group * size);
  }
  ranking = left;
}

void Router::choose_for(const RouterInput& input, std::int64_t token, RouterChoices& made) const {
  Values free = logits_of(input, token);  // logits, for choices that ignore bias and groups
  Values ranking = by_sigmoid() ? scores(input, token) : free;
  for (std::size_t e = 0; e < input.bias.size(); ++e) ranking[e] += double{input.bias[e]};
  if (moe_.router_group_topk < moe_.router_num_groups) leave_best_groups(input, token, ranking);
  const bool counts_free = moe_.balance_counts == "free";
  for (std::int64_t round = 0; round < moe_.router_topk; ++round) {
    const std::int64_t expert = first_of_largest(ranking);
    const std::int64_t other = first_of_largest(free);
    at(ranking, expert) = at(free, other) = nowhere;
    const auto here = static_cast<std::size_t>(place(token, round));
    made.chosen[here] = static_cast<int>(expert);
    made.counted[here] = static_cast<int>(counts_free ? other : expert);
  }
}

/// p m of a token: its probabilities, 0 for experts that kept it in an earlier round.
Router::Values Router::left_in_round(const RouterInput& input, const RouterChoices& made,
                                     std::int64_t token, std::int64_t round) const {
  Values left = probabilities(input, token);
  for (std::int64_t before = 0; before < round; ++before) {
    const std::int64_t here = place(token, before);
    if (at(made.kept, here) != 0) at(left, at(made.chosen, here)) = 0;
  }
  return left;
}

void Router::choose_in_rounds(const RouterInput& input, std::int64_t first,
                              RouterChoices& made) const {
  std::vector<std::int64_t> taken(static_cast<std::size_t>(moe_.num_experts));
  const std::int64_t most = places(input, first);
  for (std::int64_t round = 0; round < moe_.router_topk; ++round) {
    for (std::int64_t token = first; token < first + capacity_group_; ++token) {
      if (at(input.real, token) == 0) continue;
      Values left = left_in_round(input, made, token, round);
      for (double& value : left) value = double{static_cast<float>(value)};
      const auto here = static_cast<std::size_t>(place(token, round));
      const std::int64_t expert = first_of_largest(left);
      made.chosen[here] = made.counted[here] = static_cast<int>(expert);
      std::int64_t& full = at(taken, expert);
      full += made.kept[here] = full < most ? 1 : 0;
    }
  }
}

/// The weights of the choices of a group's tokens, by which places are distributed: the score, or
/// its share among the token's chosen scores.
Router::Values Router::weights_of(const RouterInput& input, std::int64_t first,
                                  const RouterChoices& made) const {
  Values all;
  for (std::int64_t token = first; token < first + capacity_group_; ++token) {
    const Values values = scores(input, token);
    double sum = 0;
    for (std::int64_t round = 0; round < moe_.router_topk; ++round) {
      const int expert = at(made.chosen, place(token, round));
      all.push_back(expert < 0 ? 0 : at(values, expert));
      sum += all.back();
    }
    if (weights() != ExpertWeights::chosen || sum == 0) continue;
    for (auto own = all.end() - moe_.router_topk; own != all.end(); ++own) *own /= sum;
  }
  return all;
}

/// The choices of a group's tokens, as indices in the group, in the order in which they get places.
std::vector<std::int64_t> Router::in_order(const RouterInput& input, std::int64_t first,
                                           const RouterChoices& made) const {
  std::vector<std::int64_t> order(static_cast<std::size_t>(capacity_group_ * moe_.router_topk));
  std::iota(order.begin(), order.end(), 0);
  if (moe_.overflow == Overflow::token) return order;
  const bool by_weight = moe_.overflow == Overflow::probability;
  const Values values = by_weight ? weights_of(input, first, made) : Values{};
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) {
    if (by_weight) return static_cast<float>(at(values, a)) > static_cast<float>(at(values, b));
    return a % moe_.router_topk < b % moe_.router_topk;
  });
  return order;
}

void Router::drop(const RouterInput& input, std::int64_t first, RouterChoices& made) const {
  const std::int64_t most = places(input, first);
  std::vector<std::int64_t> taken(static_cast<std::size_t>(moe_.num_experts));
  for (const std::int64_t choice : in_order(input, first, made)) {
    const auto here = static_cast<std::size_t>(place(first, 0) + choice);
    if (made.chosen[here] < 0) continue;
    std::int64_t& full = at(taken, made.chosen[here]);
    full += made.kept[here] = full < most ? 1 : 0;
  }
}

RouterChoices Router::choose(const RouterInput& input) const {
  const auto count = static_cast<std::size_t>(place(tokens_, 0));
  RouterChoices made{std::vector(count, -1), std::vector<char>(count), std::vector(count, -1)};
  const bool in_rounds = moe_.router_choice == "rounds";
  for (std::int64_t token = 0; token < tokens_ && !in_rounds; ++token) {
    if (at(input.real, token) != 0) choose_for(input, token, made);
  }
  for (std::int64_t first = 0; first < tokens_; first += capacity_group_) {
    in_rounds ? choose_in_rounds(input, first, made) : drop(input, first, made);
  }
  return made;
}

/// The balance of the choices of one round or, with round -1, of all rounds: experts / choices,
/// times the sum over experts of counted choices times the sum of p.
double Router::balance(const RouterInput& input, const RouterChoices& made, std::int64_t first,
                       std::int64_t round) const {
  Values counts(static_cast<std::size_t>(moe_.num_experts));
  Values sums(counts.size());
  double all = 0;
  for (std::int64_t token = first; token < first + balance_group_; ++token) {
    if (at(input.real, token) == 0) continue;
    for (std::int64_t j = 0; j < moe_.router_topk; ++j) {
      if (round >= 0 && j != round) continue;
      at(counts, at(made.counted, place(token, j))) += 1;
      all += 1;
    }
    const Values left = left_in_round(input, made, token, std::max<std::int64_t>(round, 0));
    double sum = 1;
    if (round >= 0) sum = std::accumulate(left.begin(), left.end(), 1e-9);
    for (std::size_t e = 0; e < left.size(); ++e) sums[e] += left[e] / sum;
  }
  if (all == 0) return 0;
  const auto experts = static_cast<double>(moe_.num_experts);
  return experts / all * std::inner_product(counts.begin(), counts.end(), sums.begin(), 0.0);
}

double Router::evenness(const RouterInput& input, const RouterChoices& made) const {
  double sum = 0;
  const bool in_rounds = moe_.router_choice == "rounds";
  const std::int64_t rounds = in_rounds ? moe_.router_topk : 1;
  for (std::int64_t first = 0; first < tokens_; first += balance_group_) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      sum += balance(input, made, first, in_rounds ? round : -1);
    }
  }
  return sum;
}

double Router::loss(const RouterInput& input, const RouterChoices& choices,
                    double positions) const {
  const bool balances = moe_.router_load_balancing_type != "none";
  const RouterSums all = sums(input, choices);
  const double uneven = balances ? moe_.aux_loss_factor * all.balance : 0;
  return (uneven + moe_.z_loss_factor * all.z_loss) / positions;
}

/// The number of choices of each expert.
Router::Values Router::loads(const RouterChoices& made) const {
  Values counts(static_cast<std::size_t>(moe_.num_experts));
  for (const int expert : made.chosen) {
    if (expert >= 0) at(counts, expert) += 1;
  }
  return counts;
}

RouterSums Router::sums(const RouterInput& input, const RouterChoices& choices) const {
  RouterSums made{.balance = evenness(input, choices), .loads = loads(choices)};
  for (std::int64_t token = 0; token < tokens_; ++token) {
    if (at(input.real, token) == 0) continue;
    made.z_loss += std::pow(log_sum(logits_of(input, token)), 2);
    for (const double p : probabilities(input, token)) {
      if (p > 0) made.entropy -= p * std::log(p);
    }
    for (std::int64_t round = 0; round < moe_.router_topk; ++round) {
      made.dropped += at(choices.kept, place(token, round)) == 0 ? 1 : 0;
    }
  }
  return made;
}

std::vector<double> Router::bias_steps(const RouterChoices& choices) const {
  Values counts = loads(choices);
  const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
  const double mean = all / static_cast<double>(counts.size());
  for (double& count : counts) {
    const int sign = (count < mean ? 1 : 0) - (count > mean ? 1 : 0);
    count = sign * moe_.router_bias_update_rate;
  }
  return counts;
}

}  // namespace trainctl::own
