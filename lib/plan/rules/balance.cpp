#include "plan/rules/balance.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace trainctl {

namespace {

/// Each part takes layers while they cost at most `most` and enough are left for those behind it.
/// Empty: they cost more.
std::vector<std::int64_t> deal(const BalanceInput& input, double most) {
  const auto layers = std::ssize(input.costs);
  std::vector<std::int64_t> counts;
  std::int64_t next = 0;
  for (std::int64_t part = 0; part < input.parts; ++part) {
    const std::int64_t behind = input.parts - 1 - part;
    double cost = behind == 0 ? input.last : 0;
    std::int64_t count = 0;
    while (next < layers) {
      const bool must = count == 0 && layers - next > behind;
      const bool may = layers - next > behind || layers < input.parts;
      const double more = cost + input.costs[static_cast<std::size_t>(next)];
      if (must && more > most) return {};
      if (!may || more > most) break;
      cost = more;
      ++count;
      ++next;
    }
    if (cost > most) return {};
    counts.push_back(count);
  }
  return next == layers ? counts : std::vector<std::int64_t>{};
}

}  // namespace

std::vector<std::int64_t> balanced_counts(const BalanceInput& input) {
  double enough = 2 * std::accumulate(input.costs.begin(), input.costs.end(), input.last);
  double least = 0;
  std::vector<std::int64_t> best = deal(input, enough);
  constexpr int halvings = 100;  // more than a double has bits
  for (int i = 0; i < halvings; ++i) {
    const double middle = least + (enough - least) / 2;
    std::vector<std::int64_t> counts = deal(input, middle);
    (counts.empty() ? least : enough) = middle;
    if (!counts.empty()) best = std::move(counts);
  }
  return best;
}

}  // namespace trainctl
