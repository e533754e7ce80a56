// Sums gradient buckets over the ranks that hold the same parameters, on a communication stream
// during the backward pass: partial ones over tensor-parallel ranks first (plan/tables/params.h,
// gradient_sum), then the bucket over its replicas, or by reduce-scatters where the optimizer's
// state is divided (plan/ownership/): a rank then has the sums of its slices. A bucket that is
// summed repeatedly is made in a slot: each sum is added to those before it, perhaps rounded, and
// leaves the slot at 0. Without gradient_fp32_sync, gradients travel in the compute type.
#pragma once

#include <memory>
#include <vector>

#include "device/slab.h"
#include "engine/parameters/exchange.h"
#include "engine/parameters/group_map.h"
#include "engine/parameters/param_store.h"

namespace trainctl {

class GradSync {
 public:
  /// Collective: forms its own groups, used only by its stream. The memory of `store` must outlive
  /// this object.
  GradSync(const Plan& plan, const ParamStore& store, const DeviceWorld& world);

  /// Starts a sum of one bucket, number `visit` of the step, after everything enqueued on `compute`
  /// so far.
  void reduce(int bucket, int visit, Stream& compute);
  /// Starts the sum of the tied embedding in this bucket over the first and the last stage, after
  /// the bucket's own sum.
  void reduce_embedding(int bucket, Stream& compute);
  /// The size of the buffer in which gradients are packed.
  std::int64_t bytes() const { return packed_.bytes().numel(); }
  /// `compute` continues only after the bucket's sums.
  void wait(int bucket, Stream& compute, double deadline_seconds);

  /// The stream of the sums; other exchanges among the same ranks may use it too.
  const OpContext& context() const { return ops_; }

 private:
  /// Gradients that are reduce-scattered over one group, and whose result is summed over another;
  /// a group is null if it would have one rank. Packed gradients are copied there and back.
  struct Sum {
    Group* scatter = nullptr;
    Group* group = nullptr;
    Divided values;
    std::vector<Move> in, out;
  };
  struct Pending {
    std::vector<Sum> sums;
    std::vector<Sum> shared;  // of the tied embedding, on the stages that hold it
    std::vector<Move> kept;   // of a repeated sum: this rank's parts, to where they are added up
    Tensor made;              // of a repeated sum: the slot
    Event done;
  };
  void add(std::vector<Sum>& sums, Group* scatter, Group* group,
           const std::vector<Divided>& gradients) const;
  void add_partial(Pending& pending, const StagePlan& stage, const ParamStore& store,
                   const Bucket& bucket);
  void add_rows(Pending& pending, const ParamStore& store, const Bucket& bucket, bool fused);
  void add_shared(Pending& pending, const StagePlan& stage, const ParamStore& store,
                  const Bucket& bucket);
  void add_kept(Pending& pending, const ParamStore& store, const Bucket& bucket) const;
  void start(const std::vector<Sum>& sums, Stream& compute);

  GroupMap groups_;  // of replicas
  std::unique_ptr<Group> tp_;
  std::unique_ptr<Group> copies_;     // tensor-parallel ranks that hold the same k and v
  std::unique_ptr<Group> embedding_;  // the first and the last stage; null on stages between them
  Slab packed_;
  Stream stream_;
  OpContext ops_;
  bool casts_ = false;  // gradients travel in another type than fp32
  std::vector<Pending> buckets_;
};

}  // namespace trainctl
