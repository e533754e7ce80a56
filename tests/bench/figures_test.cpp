// How benchmarks sum up what they measured in pairs.
#include "bench/figures.h"

#include "catch.h"

using namespace trainctl;

TEST_CASE("pairs have a ratio each, a middle and a range") {
  const std::vector<double> ratios = ratios_of({6, 2, 9, 8}, {2, 2, 3, 2});
  CHECK(ratios == std::vector<double>{3, 1, 3, 4});
  CHECK(median({4, 1, 2, 8}) == 3);
  CHECK(spread_of_pairs({4, 1, 2, 8}, "%.2f") == "3.00  (1.00 .. 8.00, 4 pairs)");
  const auto whole = [](double value) { return std::to_string(static_cast<int>(value)) + " s"; };
  CHECK(spread_of_pairs({5}, whole) == "5 s  (5 s .. 5 s, 1 pair)");
}
