// The peak rates of this machine, measured now: the denominator of every printed ratio.
#pragma once

#include "base/dtype.h"
#include "device/slab.h"
#include "ops/context.h"

namespace trainctl {

/// The library's product of [n, n] operands in `dtype`, on this rank's threads or device.
class SquareProduct {
 public:
  SquareProduct(DeviceKind device, std::int64_t n, DType dtype);
  void run(const OpContext& context) const;
  double flops() const { return 2.0 * static_cast<double>(n_ * n_ * n_); }

 private:
  std::int64_t n_;
  Slab slab_;
};

/// A copy by this rank's threads, or within its device; should be larger than the caches.
class LargeCopy {
 public:
  LargeCopy(DeviceKind device, std::int64_t bytes);
  void run(Stream& stream) const;
  double bytes() const { return 2.0 * static_cast<double>(bytes_); }  // read and written

 private:
  std::int64_t bytes_;
  Slab slab_;
};

/// FLOP/s of such products; takes about 30 ms.
double matmul_ceiling(const OpContext& context, DType dtype);
/// Bytes per second of such copies.
double memory_ceiling();

}  // namespace trainctl
