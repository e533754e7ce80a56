// The rates of this rank's threads or device, measured in turns with what is compared with them.
#pragma once

#include <memory>

#include "bench/work_clock.h"
#include "ops/context.h"
#include "run/rates.h"

namespace trainctl {

class MachineLimits {
 public:
  /// `ops` must outlive this object.
  MachineLimits(const OpContext& ops, DType compute);
  /// Once more; the best of all rounds counts. On a CPU about 100 ms.
  void measure();
  double products() const { return products_; }  // FLOP/s
  double copies() const { return copies_; }      // bytes per second, read and written

 private:
  const OpContext& ops_;
  WorkClock clock_;
  std::unique_ptr<SquareProduct> product_;
  LargeCopy copy_;
  double products_ = 0, copies_ = 0;
};

}  // namespace trainctl
