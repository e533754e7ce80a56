#include "run/rates.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>

#include "base/log.h"
#include "base/parallel_for.h"
#include "device/cuda_device.h"
#include "device/slab.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"

namespace trainctl {

SquareProduct::SquareProduct(const OpContext& context, std::int64_t n, DType dtype)
    : n_(n),
      slab_(context.stream->device(),
            {{"a", {n, n}, dtype}, {"b", {n, n}, dtype}, {"c", {n, n}, DType::f32}}) {
  if (slab_.device() == DeviceKind::cpu) {
    for (const char* name : {"a", "b"}) {
      const Tensor operand = slab_.at(name);
      std::memset(operand.data, 0x3c, static_cast<std::size_t>(operand.bytes()));
    }
    return;
  }
  const Tensor wide = slab_.at("c").view({n * n});
  std::uint64_t stream = 0;
  for (const char* name : {"a", "b"}) {
    normal_fill(context, {.x = wide, .seed = 1, .stream = ++stream});
    cast(context, {.x = wide, .y = slab_.at(name).view({n * n})});
  }
  context.stream->synchronize();
}

void SquareProduct::enqueue(const OpContext& context) const {
  matmul(context,
         {.a = slab_.at("a"), .b = slab_.at("b"), .c = slab_.at("c"), .transpose_b = true});
}

void SquareProduct::run(const OpContext& context) const {
  enqueue(context);
  context.stream->synchronize();
}

LargeCopy::LargeCopy(DeviceKind device, std::int64_t bytes)
    : bytes_(bytes), slab_(device, {{"from", {bytes}, DType::u8}, {"to", {bytes}, DType::u8}}) {
  if (device != DeviceKind::cpu) return;
  // Memory that was never written is one page of zeros, which stays in the cache.
  std::memset(slab_.at("from").data, 1, static_cast<std::size_t>(bytes));
}

void LargeCopy::enqueue(Stream& stream) const {
  if (slab_.device() != DeviceKind::cpu) return stream.copy(slab_.at("to"), slab_.at("from"));
  auto* to = static_cast<std::byte*>(slab_.at("to").data);
  const auto* from = static_cast<const std::byte*>(slab_.at("from").data);
  parallel_for(bytes_, 1 << 20, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

void LargeCopy::run(Stream& stream) const {
  enqueue(stream);
  stream.synchronize();
}

std::int64_t bytes_beyond_cache(DeviceKind device) {
  if (device == DeviceKind::cpu) return std::int64_t{256} << 20;
  constexpr std::int64_t least = std::int64_t{1} << 20;
  return std::max(least, 4 * cuda_module().properties(0).cache_bytes);
}

namespace {

/// The shortest time of several rounds, the one that other programs disturb least, from the start
/// of the first rank to the end of the last one [s]. A warm-up round comes first.
template <class Body>
double seconds_of_all(Group& everyone, int rounds, const Body& body) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  body();
  for (int round = 0; round < rounds; ++round) {
    gather_values(everyone, 0.0);  // synchronises the ranks
    const auto start = Clock::now();
    body();
    gather_values(everyone, 0.0);  // synchronises the ranks
    const double own = std::chrono::duration<double>(Clock::now() - start).count();
    const std::vector<double> all = gather_values(everyone, own);
    best = std::min(best, *std::max_element(all.begin(), all.end()));
  }
  return std::max(1e-9, best);
}

/// Seconds of one sum. Several are timed together to reduce the cost of synchronising the ranks.
double measure_sum(Group& everyone, Group& sums, const Tensor& data, int together) {
  Stream stream(data.device, "rates", Stream::Mode::run_inline);
  const double seconds = seconds_of_all(everyone, 4, [&] {
    for (int i = 0; i < together; ++i) sums.all_reduce(data, stream);
    stream.synchronize();
  });
  return seconds / together;
}

constexpr std::int64_t summed_elements = std::int64_t{1} << 20;

/// The memory of all measurements, allocated before the first one: a rank that lacks it must not
/// leave the others waiting.
struct RateMemory {
  RateMemory(DeviceKind device, std::int64_t copied)
      : copy(device, copied), sums(device, {{"data", {summed_elements}, DType::f32}}) {}
  LargeCopy copy;
  Slab sums;
};

std::unique_ptr<RateMemory> take_memory(Group& everyone, DeviceKind device, std::int64_t copied) {
  std::unique_ptr<RateMemory> memory;
  try {
    memory = std::make_unique<RateMemory>(device, copied);
  } catch (const std::exception& failure) {
    log_warning(std::string("the machine's rates are not measured: ") + failure.what());
  }
  for (const double has : gather_values(everyone, memory ? 1.0 : 0.0)) {
    if (has == 0) memory.reset();
  }
  return memory;
}

}  // namespace

double measure_products(Group& everyone, const OpContext& context, DType dtype) {
  const DeviceKind device = context.stream->device();
  // A CPU uses the same kernels as for larger products. A device needs a longer measurement, since
  // its clock rises only under load, and synchronisation of the ranks adds to the time.
  constexpr double long_enough = 5e-3;
  for (std::int64_t n = 768;; n *= 2) {
    const SquareProduct product(context, n, dtype);
    const double seconds = seconds_of_all(everyone, 3, [&] { product.run(context); });
    const bool enough = device == DeviceKind::cpu || seconds > long_enough || n > 8192;
    if (enough) return product.flops() / seconds;
  }
}

std::optional<Rates> measure_rates(Group& everyone, const DeviceWorld& world, double matmul_flops) {
  const DeviceKind device = world.device();
  // Ranks of a host share its caches: together they must copy more than the caches hold.
  const std::int64_t mebibytes =
      device == DeviceKind::cpu ? std::max(4, 32 / world.local_size()) : 256;
  const std::int64_t copied = mebibytes << 20;
  const std::unique_ptr<RateMemory> memory = take_memory(everyone, device, copied);
  if (!memory) return std::nullopt;
  const LargeCopy& copy = memory->copy;
  Stream stream(device, "copies", Stream::Mode::run_inline);
  Rates rates{.matmul_flops = matmul_flops};
  rates.memory_bandwidth = copy.bytes() / seconds_of_all(everyone, 4, [&] { copy.run(stream); });
  rates.bandwidth = rates.memory_bandwidth;
  if (everyone.size() == 1) return rates;
  const auto own = device == DeviceKind::cpu ? nullptr : world.everyone("rates");
  world.open();
  Group& sums = own ? *own : everyone;
  const Tensor& data = memory->sums.at("data");
  CollectiveUse one;
  one.operation = GroupOperation::all_reduce;
  one.ranks = everyone.size();
  one.count = 1;
  const double rounds = wire_seconds(one, {.latency = 1, .bandwidth = 1});
  rates.latency = measure_sum(everyone, sums, data.slice(0, 1), 20) / rounds;
  one.count = 0;
  one.bytes = summed_elements * size_of(DType::f32);
  const double sent = wire_seconds(one, {.latency = 1, .bandwidth = 1});
  const double transfer = measure_sum(everyone, sums, data, 1) - rounds * rates.latency;
  rates.bandwidth = sent / std::max(1e-9, transfer);
  return rates;
}

}  // namespace trainctl
