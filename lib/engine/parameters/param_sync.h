// Gathers the masters that other ranks have updated, block by block (plan/gradients/gathers.h), on
// the communication stream: rows and slices of buckets are gathered among the ranks that share a
// copy of their optimizer state, dealt parameters are broadcast by their owners. Each step begins
// with these gathers; code that reads parameters between two steps must complete them
// first.
#pragma once

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
  ParamSync(const Plan& plan, const ParamStore& store, World& world, const OpContext& queue,
            DeviceKind device);

  /// Starts the gathers of one block after everything enqueued on `compute` so far.
  void start(int block, Stream& compute);
  /// The size of the buffer that gathered parameters arrive in.
  std::int64_t bytes() const { return packed_.bytes().numel(); }
  /// The context's stream continues after the gathers and rounds matrices to the compute copy.
  void wait(int block, const OpContext& context, double deadline_seconds);

  /// Call after the optimizer: the parameters that other ranks updated are now outdated here.
  void expire() { current_ = false; }
  /// Gathers everything and waits, unless done since the last update. Collective.
  void complete(const OpContext& context, double deadline_seconds);

 private:
  struct Gather {
    Group* group = nullptr;
    Divided values;
    std::vector<Move> in, out;  // for parameters that travel together
  };
  struct Send {
    int owner = 0;  // rank within dp
    Tensor whole;
  };
  struct Copy {
    Tensor master, compute;
  };
  struct Block {
    std::vector<Gather> gathers;
    std::vector<Send> sends;
    std::vector<Copy> copies;
    Event done;
  };
  void add_rows(Block& block, const ParamStore& store, const GatherBlock& planned, bool fused);

  GroupMap groups_;
  const OpContext& queue_;
  Group* replicas_;  // null: one replica
  Slab packed_;
  std::vector<Block> blocks_;
  bool current_ = true;
};

}  // namespace trainctl
