#include "bench/machine_limits.h"

#include <algorithm>

namespace trainctl {

namespace {

constexpr int tries = 4;

/// On a CPU a size that takes the same kernels as larger ones; on a device one that is long enough
/// to be measured, and as fast as larger ones are.
std::unique_ptr<SquareProduct> suitable_product(const OpContext& ops, DType compute,
                                                WorkClock& clock) {
  if (ops.stream->device() == DeviceKind::cpu) {
    return std::make_unique<SquareProduct>(ops, 768, compute);
  }
  constexpr double long_enough = 1e-3;
  constexpr std::int64_t largest = 16384;
  for (std::int64_t n = 64;; n *= 2) {
    auto product = std::make_unique<SquareProduct>(ops, n, compute);
    product->run(ops);
    const double seconds = clock.seconds([&] { product->enqueue(ops); });
    if (seconds > long_enough || n == largest) return product;
  }
}

}  // namespace

MachineLimits::MachineLimits(const OpContext& ops, DType compute)
    : ops_(ops),
      clock_(*ops.stream),
      product_(suitable_product(ops, compute, clock_)),
      copy_(ops.stream->device(), bytes_beyond_cache(ops.stream->device())) {}

void MachineLimits::measure() {
  for (int i = 0; i < tries; ++i) {
    const double product = clock_.seconds([&] { product_->enqueue(ops_); });
    products_ = std::max(products_, product_->flops() / product);
    const double copy = clock_.seconds([&] { copy_.enqueue(*ops_.stream); });
    copies_ = std::max(copies_, copy_.bytes() / copy);
  }
}

}  // namespace trainctl
