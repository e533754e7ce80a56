#include "run/ceiling.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/parallel_for.h"
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

SquareProduct::SquareProduct(DeviceKind device, std::int64_t n, DType dtype)
    : n_(n),
      slab_(device, {{"a", {n, n}, dtype}, {"b", {n, n}, dtype}, {"c", {n, n}, DType::f32}}) {}

void SquareProduct::run(const OpContext& context) const {
  matmul(context,
         {.a = slab_.at("a"), .b = slab_.at("b"), .c = slab_.at("c"), .transpose_b = true});
  context.stream->synchronize();
}

LargeCopy::LargeCopy(DeviceKind device, std::int64_t bytes)
    : bytes_(bytes), slab_(device, {{"from", {bytes}, DType::u8}, {"to", {bytes}, DType::u8}}) {
  if (device != DeviceKind::cpu) return;
  // Memory that was never written is one page of zeros, which stays in the cache.
  std::memset(slab_.at("from").data, 1, static_cast<std::size_t>(bytes));
}

void LargeCopy::run(Stream& stream) const {
  if (slab_.device() != DeviceKind::cpu) {
    stream.copy(slab_.at("to"), slab_.at("from"));
    return stream.synchronize();
  }
  auto* to = static_cast<std::byte*>(slab_.at("to").data);
  const auto* from = static_cast<const std::byte*>(slab_.at("from").data);
  parallel_for(bytes_, 1 << 20, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

double matmul_ceiling(const OpContext& context, DType dtype) {
  const SquareProduct product(context.stream->device(), 768, dtype);
  return product.flops() / fastest_seconds(4, [&] { product.run(context); });
}

double memory_ceiling() {
  const LargeCopy copy(DeviceKind::cpu, std::int64_t{256} << 20);
  Stream stream(DeviceKind::cpu, "copy", Stream::Mode::run_inline);
  return copy.bytes() / fastest_seconds(4, [&] { copy.run(stream); });
}

}  // namespace trainctl
