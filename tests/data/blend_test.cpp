#include "data/dataset.h"

#include <cmath>

#include "catch.h"
#include "scratch_folder.h"

using namespace trainctl;
using namespace trainctl::testing;

TEST_CASE("the order of an epoch is a bijection and differs between keys") {
  for (std::uint64_t count : {1U, 2U, 3U, 4U, 5U, 7U, 16U, 17U, 100U, 1000U, 1024U, 4097U}) {
    for (std::uint64_t key : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
      std::vector<bool> seen(count, false);
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t to = permuted(i, count, key);
        REQUIRE(to < count);
        REQUIRE_FALSE(seen[to]);
        seen[to] = true;
      }
    }
  }
  int fixed = 0;
  int equal = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    fixed += permuted(i, 1000, 1) == i ? 1 : 0;
    equal += permuted(i, 1000, 1) == permuted(i, 1000, 2) ? 1 : 0;
  }
  CHECK(fixed < 10);
  CHECK(equal < 10);
}

TEST_CASE("the order is spread evenly") {
  // Each tenth of the outputs should hold about a tenth of the first 10,000 of 100,000.
  std::vector<int> tenth(10, 0);
  for (std::uint64_t i = 0; i < 10000; ++i) ++tenth[permuted(i, 100000, 77) / 10000];
  for (int count : tenth) CHECK(std::abs(count - 1000) < 150);
}

TEST_CASE("after any number of samples each source has had its share within one") {
  const std::vector<std::vector<double>> blends{
      {1},           {0.3, 0.7},
      {1, 2, 3},     {0.5, 0.25, 0.125, 0.0625, 0.0625},
      {98, 1, 1},    {1, 1, 1, 1, 1, 1, 1},
      {0.9, 0, 0.1}, {3.14159, 2.71828, 1.41421, 0.57721},
      {1e-9, 1, 2},  {100, 37, 11, 5, 3, 2, 1, 1, 0.5, 0.25},
  };
  for (const auto& weights : blends) {
    const Blend blend(weights);
    std::vector<std::int64_t> had(weights.size(), 0);
    double worst = 0;
    for (std::int64_t n = 0; n < 3 * blend.period() && n < 150'000; ++n) {
      const Blend::Pick pick = blend.pick(n);
      REQUIRE(pick.sample == had[pick.source]);
      ++had[pick.source];
      for (std::size_t source = 0; source < weights.size(); ++source) {
        const double quota = static_cast<double>(n + 1) * static_cast<double>(blend.share(source)) /
                             static_cast<double>(blend.period());
        worst = std::max(worst, std::abs(static_cast<double>(had[source]) - quota));
      }
    }
    CHECK(worst < 1);
  }
}

TEST_CASE("weights become exact fractions where a short period holds them") {
  CHECK(Blend({0.3, 0.7}).period() == 10);
  CHECK(Blend({1, 2, 3}).period() == 6);
  CHECK(Blend({5, 5}).period() == 2);
  CHECK(Blend({0.123, 0.877}).period() == 1000);
  const Blend irrational({std::sqrt(2.0), 1});
  CHECK(irrational.period() == 65536);
  CHECK(irrational.share(0) == std::llround(65536 * std::sqrt(2.0) / (1 + std::sqrt(2.0))));
  CHECK(Blend({1e-9, 1}).share(0) == 1);
  CHECK(Blend({0, 1}).share(0) == 0);
  const Blend::Pick far = Blend({0.3, 0.7}).pick(10'000'000'000'000);
  CHECK(far.sample == (far.source == 0 ? 3'000'000'000'000 : 7'000'000'000'000));
}

TEST_CASE("weights that make no blend are refused") {
  const auto error = [](const std::vector<double>& weights) {
    return error_of([&] { Blend blend(weights); });
  };
  CHECK(missing_in(error({1, -1}), {"78 ", "-1.0", "must be >= 0"}) == "");
  CHECK(missing_in(error({1, std::nan("")}), {"78 ", "nan"}) == "");
  CHECK(missing_in(error({0, 0}), {"78 ", "all 0"}) == "");
  CHECK(missing_in(error({}), {"78 ", "all 0"}) == "");
  CHECK(missing_in(error(std::vector<double>(5000, 1)), {"78 5000 data sources", "4096"}) == "");
}
