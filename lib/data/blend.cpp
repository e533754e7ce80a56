#include "data/blend.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <string>

#include "base/error.h"

namespace trainctl {

namespace {

constexpr std::int64_t longest_period = 65536;

std::vector<double> fractions_of(const std::vector<double>& weights) {
  double sum = 0;
  for (double weight : weights) {
    require(std::isfinite(weight) && weight >= 0, ExitCode::config,
            "the weight of a data source is " + std::to_string(weight) + "; it must be >= 0");
    sum += weight;
  }
  require(sum > 0, ExitCode::config, "the weights of the data sources are all 0");
  std::vector<double> fractions;
  for (double weight : weights) fractions.push_back(weight / sum);
  return fractions;
}

/// Whether every fraction is a whole number of samples in `period`, as exactly as doubles tell.
bool is_exact(const std::vector<double>& fractions, std::int64_t period) {
  return std::all_of(fractions.begin(), fractions.end(), [period](double fraction) {
    const double samples = fraction * static_cast<double>(period);
    return std::abs(samples - std::round(samples)) <= 1e-9;
  });
}

std::int64_t period_for(const std::vector<double>& fractions) {
  for (std::int64_t period = 1; period < longest_period; ++period) {
    if (is_exact(fractions, period)) return period;
  }
  return longest_period;
}

/// Whole samples that sum to `period`: the nearest ones, then what is missing or too much is put on
/// the largest source.
std::vector<std::int64_t> shares_of(const std::vector<double>& fractions, std::int64_t period) {
  std::vector<std::int64_t> shares;
  for (double fraction : fractions) {
    const auto nearest = std::llround(fraction * static_cast<double>(period));
    shares.push_back(fraction > 0 ? std::max<std::int64_t>(nearest, 1) : 0);
  }
  const std::int64_t sum = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  *std::max_element(shares.begin(), shares.end()) += period - sum;
  return shares;
}

}  // namespace

Blend::Blend(const std::vector<double>& weights) {
  require(weights.size() <= 4096, ExitCode::config,
          std::to_string(weights.size()) + " data sources; at most 4096 can be blended");
  const std::vector<double> fractions = fractions_of(weights);
  const std::int64_t period = period_for(fractions);
  share_ = shares_of(fractions, period);
  lay_pattern(period);
}

/// Sample k of a source may come once its quota has reached k and must come before it passes k + 1.
/// Taking, of those that may, the one that must come first meets all deadlines (Tijdeman, "The
/// chairman assignment problem", 1980): so no source is ever a whole sample off its quota.
void Blend::lay_pattern(std::int64_t period) {
  std::vector<std::int64_t> had(share_.size(), 0);
  pattern_.reserve(static_cast<std::size_t>(period));
  for (std::int64_t place = 0; place < period; ++place) {
    std::size_t chosen = share_.size();
    std::int64_t earliest = 0;
    for (std::size_t source = 0; source < share_.size(); ++source) {
      const std::int64_t share = share_[source];
      // Released when floor(had * period / share) <= place, that is had * period < (place + 1) *
      // share; due by place ceil((had + 1) * period / share).
      if (had[source] * period >= (place + 1) * share) continue;
      const std::int64_t due = ((had[source] + 1) * period + share - 1) / share;
      if (chosen == share_.size() || due < earliest) {
        chosen = source;
        earliest = due;
      }
    }
    assert(chosen < share_.size());
    pattern_.push_back(
        {static_cast<std::uint32_t>(chosen), static_cast<std::uint32_t>(had[chosen]++)});
  }
}

Blend::Pick Blend::pick(std::int64_t index) const {
  const std::int64_t round = index / period();
  const Entry entry = pattern_[static_cast<std::size_t>(index % period())];
  return {entry.source, round * share_[entry.source] + entry.before};
}

std::vector<std::int64_t> Blend::counts(std::int64_t samples) const {
  std::vector<std::int64_t> counts;
  for (const std::int64_t share : share_) counts.push_back(samples / period() * share);
  for (std::int64_t place = 0; place < samples % period(); ++place) {
    ++counts[pattern_[static_cast<std::size_t>(place)].source];
  }
  return counts;
}

}  // namespace trainctl
