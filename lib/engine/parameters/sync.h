// Exchanges of parameters: sums of gradients over the ranks that hold them, and gathers of weights.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/nccl/device_world.h"
#include "comm/world.h"
#include "device/slab.h"
#include "engine/parameters/param_store.h"
#include "ops/context.h"
#include "plan/tables/mesh.h"

namespace trainctl {

inline Tensor flat(const Tensor& x) { return x.view({x.numel()}); }

/// A copy between a tensor and its place in a buffer; casts if the types differ.
struct Move {
  Tensor to, from;
};

/// Enqueues the copies in order on the stream of the context, which must outlive them.
void enqueue(std::span<const Move> moves, const OpContext& ops);

/// Flat values divided into `ranks` equal parts; each rank of a group receives or supplies one.
struct Divided {
  Tensor whole;
  Tensor part;  // this rank's part
};

/// Places for several parameters in one buffer, ordered as a call over a group needs them: the
/// parts of rank 0, one of each tensor, then those of rank 1 and so on. `buffer` must have room for
/// all parts.
struct Packed {
  Divided all;
  std::vector<Move> in, out;  // copies before sending; copies after receiving
};

/// For a reduce-scatter: everything is copied in, the rank's own parts are copied out.
Packed pack_scatter(std::span<const Divided> tensors, const Tensor& buffer, int ranks, int rank);
/// For an all-gather: the rank's own parts are copied in, everything is copied out.
Packed pack_gather(std::span<const Divided> tensors, const Tensor& buffer, int ranks, int rank);

class GroupMap;

// Sums gradient buckets over the ranks that hold the same parameters, on a communication stream
// during the backward pass: first partial gradients over tensor-parallel ranks
// (plan/tables/params.h, gradient_sum), then the bucket over its replicas. Where the optimizer's
// state is divided (plan/ownership/), reduce-scatters give a rank the sums of its slices. A bucket
// that is summed repeatedly is made in a slot: each sum is added to those before it, perhaps
// rounded, and leaves the slot at 0. Without gradient_fp32_sync, gradients travel in the compute
// type.

class GradSync {
 public:
  /// Collective: forms its own groups, used only by its stream. The memory of `store` must outlive
  /// this object.
  GradSync(const Plan& plan, const ParamStore& store, const DeviceWorld& world);
  ~GradSync();

  /// Starts a sum of one bucket, number `visit` of the step, after everything enqueued on `compute`
  /// so far.
  void reduce(int bucket, int visit, Stream& compute);
  /// Starts the sum of the tied embedding in this bucket over the first and the last stage, after
  /// the bucket's own sum.
  void reduce_embedding(int bucket, Stream& compute);
  /// The size of the buffer in which gradients are packed.
  std::int64_t bytes() const { return packed_.bytes().numel(); }
  /// Makes `compute` wait for the bucket's sums.
  void wait(int bucket, Stream& compute, double deadline_seconds);

  /// The stream of the sums; other exchanges among the same ranks may use it too.
  const OpContext& context() const { return ops_; }

 private:
  struct Sum;
  struct Pending;
  void add(std::vector<Sum>& sums, Group* scatter, Group* group,
           const std::vector<Divided>& gradients) const;
  void add_partial(Pending& pending, const StagePlan& stage, const ParamStore& store,
                   const Bucket& bucket);
  void add_rows(Pending& pending, const ParamStore& store, const Bucket& bucket, bool fused);
  void add_shared(Pending& pending, const StagePlan& stage, const ParamStore& store,
                  const Bucket& bucket);
  void add_kept(Pending& pending, const ParamStore& store, const Bucket& bucket) const;
  void start(const std::vector<Sum>& sums, Stream& compute);

  std::unique_ptr<GroupMap> groups_;  // groups of replicas
  std::unique_ptr<Group> tp_;
  std::unique_ptr<Group> copies_;     // tensor-parallel ranks that hold the same k and v
  std::unique_ptr<Group> embedding_;  // the first and the last stage; null on stages between them
  Slab packed_;
  Stream stream_;
  OpContext ops_;
  bool casts_ = false;  // gradients travel in another type than fp32
  std::vector<Pending> buckets_;
};

// Gathers the weights of parameters that other ranks have updated, block by block
// (plan/gradients/gathers.h), on the communication stream, in the types in which layers read them:
// rows and slices of buckets are gathered among the ranks that share a copy of their optimizer
// state, dealt parameters are broadcast by their owners. Blocks that stay are gathered at the start
// of a step, other blocks before each use: from ranks, or from the host on a separate queue. Code
// that reads weights between two steps must gather them first.

class ParamSync {
 public:
  /// Collective: forms its own groups, used only by the stream of `queue`. The queue and the memory
  /// of `store` must outlive this object.
  ParamSync(const Plan& plan, const ParamStore& store, const DeviceWorld& world,
            const OpContext& queue);
  ~ParamSync();

  /// Starts the gathers of one block after everything enqueued on `compute` so far.
  void start(int block, Stream& compute);
  /// The size of the buffer that gathered weights arrive in.
  std::int64_t bytes() const { return packed_.bytes().numel(); }
  /// Makes the context's stream wait for the gathers of the block.
  void wait(int block, const OpContext& context, double deadline_seconds);

  /// Call when masters have changed: the weights that other ranks update are now outdated here.
  void expire();
  /// Gathers every block that stays and waits, unless done since the last update. Collective.
  void complete(const OpContext& context, double deadline_seconds);

 private:
  struct Gather;
  struct Send;
  struct Block;
  void add_slices(Block& block, const Plan& plan, const ParamStore& store, int number,
                  Group& replicas);
  void add_rows(Block& block, const Plan& plan, const ParamStore& store,
                const GatherBlock& planned);
  /// Starts a block that is kept on the host: the first call after an update copies this rank's
  /// weights to the host, later calls copy them back.
  void bring(Block& block);
  Tensor packed(std::int64_t elements, DType type) const;

  const StagePlan& stage_;
  std::unique_ptr<GroupMap> groups_;
  const OpContext& queue_;
  Slab packed_;
  std::unique_ptr<Stream> host_copies_;  // null if no block is on the host
  std::vector<Block> blocks_;
  bool current_ = false;
};

}  // namespace trainctl
