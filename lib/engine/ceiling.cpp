#include "engine/ceiling.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/parallel_for.h"
#include "device/slab.h"
#include "ops/matmul.h"

namespace trainctl {

namespace {

template <class Body>
double fastest_seconds(int rounds, Body body) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

}  // namespace

double matmul_ceiling(const OpContext& context, DType dtype) {
  constexpr std::int64_t n = 768;
  const Slab slab(DeviceKind::cpu,
                  {{"a", {n, n}, dtype}, {"b", {n, n}, dtype}, {"c", {n, n}, DType::f32}});
  const double seconds = fastest_seconds(4, [&] {
    matmul(context, {.a = slab.at("a"), .b = slab.at("b"), .c = slab.at("c"), .transpose_b = true});
  });
  return 2.0 * n * n * n / seconds;
}

double memory_ceiling() {
  constexpr std::int64_t bytes = std::int64_t{256} << 20;
  const Slab slab(DeviceKind::cpu, {{"from", {bytes}, DType::u8}, {"to", {bytes}, DType::u8}});
  auto* to = static_cast<std::byte*>(slab.at("to").data);
  const auto* from = static_cast<const std::byte*>(slab.at("from").data);
  const double seconds = fastest_seconds(4, [&] {
    parallel_for(bytes, 1 << 20, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
    });
  });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

}  // namespace trainctl
