// Sums gradient buckets over the ranks that hold the same parameters, on a communication stream
// while the backward still runs: first, packed, those parameters whose gradient is partial over
// tensor-parallel ranks (plan/tables/params.h, gradient_sum), then the bucket over its replicas.
// Where optimizer state is divided it is reduce-scattered, as a whole or by the routes of its
// parameters (plan/ownership/ownership.h, plan/ownership/row_exchange.h): a rank then has the sum
// of its slices only, and anything elsewhere. Without gradient_fp32_sync gradients travel in the
// compute type.
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
  /// Collective: forms its own groups, which only its stream uses. The memory of `store` must
  /// outlive this.
  GradSync(const Plan& plan, const ParamStore& store, World& world, DeviceKind device);

  /// Starts the sum of one bucket after everything that `compute` holds so far.
  void reduce(int bucket, Stream& compute);
  /// Starts the sum of the tied embedding in this bucket over the first and the last stage, after
  /// the bucket's own sum.
  void reduce_embedding(int bucket, Stream& compute);
  /// Of the buffer in which gradients are packed.
  std::int64_t bytes() const { return packed_.bytes().numel(); }
  /// `compute` continues after the bucket's sums.
  void wait(int bucket, Stream& compute, double deadline_seconds);

  /// Where the sums run; whatever else the same ranks exchange may run there too.
  const OpContext& context() const { return ops_; }

 private:
  /// Gradients that are reduce-scattered over one group, and what that leaves summed over another;
  /// either null where it would be one rank. Packed gradients are moved there and back.
  struct Sum {
    Group* scatter = nullptr;
    Group* group = nullptr;
    Divided values;
    std::vector<Move> in, out;
  };
  struct Pending {
    std::vector<Sum> sums;
    std::vector<Sum> shared;  // of the tied embedding, on the stages that hold one
    Event done;
  };
  void add(std::vector<Sum>& sums, Group* scatter, Group* group,
           const std::vector<Divided>& gradients) const;
  void add_partial(Pending& pending, const StagePlan& stage, const ParamStore& store,
                   const Bucket& bucket);
  void add_rows(Pending& pending, const ParamStore& store, const Bucket& bucket, bool fused);
  void add_shared(Pending& pending, const StagePlan& stage, const ParamStore& store,
                  const Bucket& bucket);
  void start(const std::vector<Sum>& sums, Pending& pending, Stream& compute);

  GroupMap groups_;  // of replicas
  Group* replicas_;  // null: there is one
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
