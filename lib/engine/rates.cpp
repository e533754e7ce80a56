#include "engine/rates.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/parallel_for.h"
#include "device/slab.h"
#include "ops/matmul.h"

namespace trainctl {

namespace {

/// Of the best of some rounds, which other programs disturb least: from the first rank's start to
/// the last one's end. One more round comes first and does not count.
template <class Body>
double seconds_of_all(Group& everyone, int rounds, const Body& body) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  body();
  for (int round = 0; round < rounds; ++round) {
    gather_values(everyone, 0.0);  // all begin together
    const auto start = Clock::now();
    body();
    gather_values(everyone, 0.0);  // and end together
    const double own = std::chrono::duration<double>(Clock::now() - start).count();
    const std::vector<double> all = gather_values(everyone, own);
    best = std::min(best, *std::max_element(all.begin(), all.end()));
  }
  return std::max(1e-9, best);
}

double measure_copies(Group& everyone) {
  constexpr std::int64_t bytes = std::int64_t{32} << 20;
  const Slab slab(DeviceKind::cpu, {{"from", {bytes}, DType::u8}, {"to", {bytes}, DType::u8}});
  auto* to = static_cast<std::byte*>(slab.at("to").data);
  const auto* from = static_cast<const std::byte*>(slab.at("from").data);
  const double seconds = seconds_of_all(everyone, 4, [&] {
    parallel_for(bytes, 1 << 20, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
    });
  });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

double measure_sum(Group& everyone, std::int64_t elements, int rounds) {
  const Slab slab(DeviceKind::cpu, {{"data", {elements}, DType::f32}});
  Stream stream(DeviceKind::cpu, "rates", Stream::Mode::run_inline);
  return seconds_of_all(everyone, rounds,
                         [&] { everyone.all_reduce(slab.at("data"), stream); });
}

}  // namespace

double measure_products(Group& everyone, const OpContext& context, DType dtype) {
  constexpr std::int64_t n = 512;
  const Slab slab(DeviceKind::cpu,
                  {{"a", {n, n}, dtype}, {"b", {n, n}, dtype}, {"c", {n, n}, DType::f32}});
  const double seconds = seconds_of_all(everyone, 8, [&] {
    matmul(context, {.a = slab.at("a"), .b = slab.at("b"), .c = slab.at("c"), .transpose_b = true});
    context.stream->synchronize();
  });
  return 2.0 * n * n * n / seconds;
}

Rates measure_rates(Group& everyone, double matmul_flops) {
  Rates rates{.matmul_flops = matmul_flops, .memory_bandwidth = measure_copies(everyone)};
  rates.bandwidth = rates.memory_bandwidth;
  if (everyone.size() == 1) return rates;
  constexpr std::int64_t elements = std::int64_t{1} << 20;
  CollectiveUse one;
  one.operation = "all_reduce";
  one.ranks = everyone.size();
  one.count = 1;
  const double rounds = wire_seconds(one, {.latency = 1, .bandwidth = 1});
  rates.latency = measure_sum(everyone, 1, 20) / rounds;
  one.count = 0;
  one.bytes = elements * size_of(DType::f32);
  const double sent = wire_seconds(one, {.latency = 1, .bandwidth = 1});
  const double transfer = measure_sum(everyone, elements, 4) - rounds * rates.latency;
  rates.bandwidth = sent / std::max(1e-9, transfer);
  return rates;
}

}  // namespace trainctl
