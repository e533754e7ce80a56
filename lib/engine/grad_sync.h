// Sums gradient buckets over the ranks that hold the same parameters, on a communication stream
// while the backward still runs: first, packed, those parameters whose gradient is partial over
// tensor-parallel ranks (plan/params.h, gradient_sum), then the bucket over its replicas. Where
// optimizer state is divided it is reduce-scattered in place, as a whole or parameter by parameter
// (plan/ownership.h): a rank then has the sum of its slices only, and anything elsewhere. Without
// gradient_fp32_sync gradients travel in the compute type.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"
#include "device/slab.h"
#include "engine/param_store.h"
#include "ops/context.h"

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
  /// Of the buffer in which partial gradients are packed.
  std::int64_t bytes() const { return packed_.bytes().numel(); }
  /// `compute` continues after the bucket's sums.
  void wait(int bucket, Stream& compute, double deadline_seconds);

  /// Where the sums run; whatever else the same ranks exchange may run there too.
  Stream& stream() { return stream_; }

 private:
  /// Gradients that are summed over `group`: in place if there are no places, else through these,
  /// parts of a buffer in which they are packed and in the type in which they travel.
  struct Sum {
    Group* group = nullptr;
    std::vector<Tensor> gradients;
    std::vector<Tensor> places;
    Tensor all;
  };
  /// Scattered to `slice` over one group, whose values are then summed over another; each null
  /// where it would be a single rank.
  struct Scatter {
    Group* scatter = nullptr;
    Sum mirror;
    Tensor gradient, slice;
  };
  struct Pending {
    Sum replicas;
    std::vector<Scatter> scatters;  // instead of `replicas`, if there are any
    std::vector<Sum> partial;
    Sum shared;  // of the tied embedding, on the stages that hold one
    Event done;
  };
  std::vector<Scatter> scatters(const StagePlan& stage, const ParamStore& store, int bucket);
  Group* group_over(const std::string& kind, const std::vector<int>& ranks);
  Sum sum_of(Group* group, const Tensor& gradients) const;
  Sum pack(const StagePlan& stage, const ParamStore& store, const Bucket& bucket, Group* group,
           bool copies) const;
  void move(const Tensor& to, const Tensor& from);
  void run(const Sum& sum);
  void run(const Scatter& scatter);

  World& world_;
  std::unique_ptr<Group> replicas_;
  std::map<std::vector<int>, std::unique_ptr<Group>> shards_;  // of replicas
  std::unique_ptr<Group> tp_;
  std::unique_ptr<Group> copies_;     // tensor-parallel ranks that hold the same k and v
  std::unique_ptr<Group> embedding_;  // the first and the last stage; null on those between
  Slab packed_;
  Stream stream_;
  OpContext ops_;
  bool casts_ = false;  // gradients travel in another type than fp32
  std::vector<Pending> buckets_;
};

}  // namespace trainctl
