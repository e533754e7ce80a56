// Sums gradient buckets over data-parallel ranks on a communication stream while the backward still
// runs.
#pragma once

#include <vector>

#include "comm/group.h"
#include "engine/param_store.h"

namespace trainctl {

class GradSync {
 public:
  /// `group` and the memory of `store` must outlive this.
  GradSync(Group& group, const ParamStore& store, int buckets, DeviceKind device);

  /// Starts the sum of one bucket after everything that `compute` holds so far.
  void reduce(int bucket, Stream& compute);
  /// `compute` continues after the bucket's sum.
  void wait(int bucket, Stream& compute, double deadline_seconds);
  Stream& stream() { return stream_; }

 private:
  struct Pending {
    Tensor gradients;
    Event done;
  };
  Group& group_;
  Stream stream_;
  std::vector<Pending> buckets_;
};

}  // namespace trainctl
