// Sums gradient buckets over the ranks that hold the same parameters, on a communication stream
// while the backward still runs: first, packed, those parameters whose gradient is partial over
// tensor-parallel ranks (plan/params.h, gradient_sum), then the bucket over its replicas. A bucket
// of parameters whose optimizer state is cut by rows is reduce-scattered, each in place: a rank
// then has the sum of its slice only, and anything elsewhere.
#pragma once

#include <memory>
#include <vector>

#include "comm/world.h"
#include "device/slab.h"
#include "engine/param_store.h"

namespace trainctl {

class GradSync {
 public:
  /// Collective: forms its own groups, which only its stream uses. The memory of `store` must
  /// outlive this.
  GradSync(const Plan& plan, const ParamStore& store, World& world, DeviceKind device);

  /// Starts the sum of one bucket after everything that `compute` holds so far.
  void reduce(int bucket, Stream& compute);
  /// Starts the sum of the tied embedding in this bucket over the first and the last stage, after
  /// the bucket's own sum.
  void reduce_embedding(int bucket, Stream& compute);
  /// `compute` continues after the bucket's sums.
  void wait(int bucket, Stream& compute, double deadline_seconds);

 private:
  /// Gradients of a bucket that are summed over `group` through one packed buffer.
  struct Packed {
    Group* group = nullptr;
    std::vector<Tensor> gradients;
    std::vector<Tensor> places;  // in the packed buffer
    Tensor all;
  };
  struct Scatter {
    Tensor gradient, slice;
  };
  struct Pending {
    Tensor gradients;
    std::vector<Scatter> scatters;  // of these, and not the bucket as a whole, if there are any
    std::vector<Packed> partial;
    Tensor shared;  // the tied embedding's gradient, on the stages that hold one
    Event done;
  };
  std::vector<Scatter> scatters(const StagePlan& stage, const ParamStore& store,
                                const Bucket& bucket) const;
  Packed pack(const StagePlan& stage, const ParamStore& store, const Bucket& bucket, Group* group,
              bool copies) const;

  std::unique_ptr<Group> replicas_;
  std::unique_ptr<Group> tp_;
  std::unique_ptr<Group> copies_;     // tensor-parallel ranks that hold the same k and v
  std::unique_ptr<Group> embedding_;  // the first and the last stage; null on those between
  Slab packed_;
  Stream stream_;
  std::vector<Pending> buckets_;
};

}  // namespace trainctl
