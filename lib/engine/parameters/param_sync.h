// Gathers the weights of parameters that other ranks have updated, block by block
// (plan/gradients/gathers.h), on the communication stream, in the types in which layers read them:
// rows and slices of buckets are gathered among the ranks that share a copy of their optimizer
// state, dealt parameters are broadcast by their owners. Blocks that stay are gathered as a step
// begins, others for each use: from ranks, or from the host on a queue of its own. Code that reads
// weights between two steps must gather them first.
#pragma once

#include <memory>
#include <vector>

#include "device/slab.h"
#include "engine/parameters/exchange.h"
#include "engine/parameters/group_map.h"
#include "engine/parameters/param_store.h"

namespace trainctl {

class ParamSync {
 public:
  /// Collective: forms its own groups, used only by the stream of `queue`. The queue and the memory
  /// of `store` must outlive this object.
  ParamSync(const Plan& plan, const ParamStore& store, const DeviceWorld& world,
            const OpContext& queue);

  /// Starts the gathers of one block after everything enqueued on `compute` so far.
  void start(int block, Stream& compute);
  /// The size of the buffer that gathered weights arrive in.
  std::int64_t bytes() const { return packed_.bytes().numel(); }
  /// The context's stream continues after the gathers.
  void wait(int block, const OpContext& context, double deadline_seconds);

  /// Call when masters have changed: the weights that other ranks update are now outdated here.
  void expire();
  /// Gathers every block that stays and waits, unless done since the last update. Collective.
  void complete(const OpContext& context, double deadline_seconds);

 private:
  struct Gather {
    Group* group = nullptr;
    Divided values;
    std::vector<Move> in, out;  // for weights that travel together
  };
  struct Send {
    Group* group = nullptr;
    int owner = 0;  // rank within it
    Tensor whole;
  };
  struct Block {
    std::vector<Move> own;  // masters to their places in a block that does not stay
    std::vector<Gather> gathers;
    std::vector<Send> sends;
    Tensor here, host;        // of a block from the host
    bool host_knows = false;  // since the last update
    Event done;
  };
  void add_slices(Block& block, const Plan& plan, const ParamStore& store, int number,
                  Group& replicas);
  void add_rows(Block& block, const Plan& plan, const ParamStore& store,
                const GatherBlock& planned);
  /// What `start` does with a block from the host: the first time after an update it is made from
  /// the masters and copied there, then it is copied back.
  void bring(Block& block);
  Tensor packed(std::int64_t elements, DType type) const;

  const StagePlan& stage_;
  GroupMap groups_;
  const OpContext& queue_;
  Slab packed_;
  std::unique_ptr<Stream> host_copies_;  // null: no block is on the host
  std::vector<Block> blocks_;
  bool current_ = false;
};

}  // namespace trainctl
