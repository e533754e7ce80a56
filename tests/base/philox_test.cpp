#include "base/philox.h"

#include <cmath>
#include <set>

#include "catch.h"

using namespace trainctl;

TEST_CASE("Philox4x32-10 agrees with the published vectors of Random123") {
  const auto zeros = Philox(0, 0).block(0);
  CHECK(zeros == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const auto ones = Philox(~0ULL, ~0ULL).block(~0ULL);
  CHECK(ones == std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

TEST_CASE("elements of a block are its words") {
  const Philox random(7, 9);
  const auto block = random.block(3);
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(random.bits(12 + i) == block[i]);
}

TEST_CASE("streams and seeds are apart") {
  std::set<std::uint32_t> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (std::uint64_t stream = 0; stream < 20; ++stream) seen.insert(Philox(seed, stream).bits(5));
  }
  CHECK(seen.size() == 400);
}

TEST_CASE("uniform and normal values have their moments") {
  const Philox random(1234, 1);
  constexpr int count = 200000;
  double uniform = 0;
  double mean = 0;
  double square = 0;
  double fourth = 0;
  for (int i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const float u = random.uniform(index);
    REQUIRE(u >= 0.0F);
    REQUIRE(u < 1.0F);
    uniform += static_cast<double>(u);
    const double n = static_cast<double>(random.normal(index));
    REQUIRE(std::isfinite(n));
    mean += n;
    square += n * n;
    fourth += n * n * n * n;
  }
  CHECK(uniform / count == Approx(0.5).margin(0.003));
  CHECK(mean / count == Approx(0.0).margin(0.01));
  CHECK(square / count == Approx(1.0).margin(0.02));
  CHECK(fourth / count == Approx(3.0).margin(0.12));
}
