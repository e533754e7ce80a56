// Matrix products and copies that measure the peak rates of a machine, against which printed ratios
// are given, and the rates of a rank while all ranks are busy.
#pragma once

#include <optional>

#include "base/dtype.h"
#include "comm/group.h"
#include "comm/nccl/device_world.h"
#include "device/slab.h"
#include "ops/context.h"
#include "plan/cost/step_time.h"

namespace trainctl {

/// A matrix product of [n, n] operands in `dtype` by the library's kernels, on the threads or the
/// device of this rank. On a device the operands are random, since zeros take less power and are
/// multiplied faster; on a CPU the time is the same for all normal numbers.
class SquareProduct {
 public:
  SquareProduct(const OpContext& context, std::int64_t n, DType dtype);
  void enqueue(const OpContext& context) const;
  void run(const OpContext& context) const;  // enqueues and waits
  double flops() const { return 2.0 * static_cast<double>(n_ * n_ * n_); }

 private:
  std::int64_t n_;
  Slab slab_;
};

/// A copy by this rank's threads, or within its device. `bytes` should exceed the caches.
class LargeCopy {
 public:
  LargeCopy(DeviceKind device, std::int64_t bytes);
  void enqueue(Stream& stream) const;
  void run(Stream& stream) const;                                     // enqueues and waits
  double bytes() const { return 2.0 * static_cast<double>(bytes_); }  // read and written

 private:
  std::int64_t bytes_;
  Slab slab_;
};

/// The size of a copy that evicts all earlier data from the caches: on a device four times the size
/// of its second-level cache. Uses the device of the calling thread, or the first one of several
/// alike.
std::int64_t bytes_beyond_cache(DeviceKind device);

// Rates of a rank, measured while all ranks are busy. A plan's time estimate uses them if the
// configuration gives none.

/// Measures Rates::matmul_flops on each rank's threads or device with square operands in `dtype`.
/// Takes a few dozen ms, more where ranks share cores. Collective over all ranks.
double measure_products(Group& everyone, const OpContext& context, DType dtype);

/// Measures the remaining rates; `matmul_flops` is given. The bandwidth of messages is that of sums
/// over all ranks; a single rank, which sends none, gets the bandwidth of its memory. Returns none
/// if a rank lacks memory for this; that rank logs it. Collective over all ranks.
std::optional<Rates> measure_rates(Group& everyone, const DeviceWorld& world, double matmul_flops);

}  // namespace trainctl
