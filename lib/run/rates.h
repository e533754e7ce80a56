// Products and copies with which the peak rates of a machine are measured, the denominators of
// every printed ratio; the rates of a rank while all ranks are busy.
#pragma once

#include <optional>

#include "base/dtype.h"
#include "comm/group.h"
#include "comm/nccl/device_world.h"
#include "device/slab.h"
#include "ops/context.h"
#include "plan/cost/step_time.h"

namespace trainctl {

/// The library's product of [n, n] operands in `dtype`, on this rank's threads or device. On a
/// device the operands are random, since zeros take less power and are multiplied faster; a CPU
/// takes as long for any normal numbers.
class SquareProduct {
 public:
  SquareProduct(const OpContext& context, std::int64_t n, DType dtype);
  void enqueue(const OpContext& context) const;
  void run(const OpContext& context) const;  // and waits
  double flops() const { return 2.0 * static_cast<double>(n_ * n_ * n_); }

 private:
  std::int64_t n_;
  Slab slab_;
};

/// A copy by this rank's threads, or within its device; should be larger than the caches.
class LargeCopy {
 public:
  LargeCopy(DeviceKind device, std::int64_t bytes);
  void enqueue(Stream& stream) const;
  void run(Stream& stream) const;                                     // and waits
  double bytes() const { return 2.0 * static_cast<double>(bytes_); }  // read and written

 private:
  std::int64_t bytes_;
  Slab slab_;
};

/// The size of a copy after which the caches hold nothing of earlier data: on a device four times
/// its second-level cache. Asks the calling thread's device, the first where there are several
/// alike.
std::int64_t bytes_beyond_cache(DeviceKind device);

// The rates of a rank, measured while all ranks are busy: the basis for a plan's time estimate if
// the config does not give them.

/// Rates::matmul_flops, by each rank's threads or device on square operands in `dtype`. A few dozen
/// ms, more where ranks share cores. Collective over all ranks.
double measure_products(Group& everyone, const OpContext& context, DType dtype);

/// All rates, `matmul_flops` being known. Messages are those of sums over all ranks; of one rank,
/// which sends none, the bandwidth is its memory's. None where a rank has no memory for it; that
/// rank says so. Collective over all ranks.
std::optional<Rates> measure_rates(Group& everyone, const DeviceWorld& world, double matmul_flops);

}  // namespace trainctl
