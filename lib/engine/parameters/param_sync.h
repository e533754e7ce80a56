// Brings the masters that other ranks have updated to this one, block by block
// (plan/gradients/gathers.h), on the communication stream: rows and slices of buckets are gathered
// among the ranks that share a copy of their optimizer state, dealt parameters broadcast by their
// owners. A step begins with these rows; whoever reads parameters between two steps completes them
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
  /// Collective: forms its own groups, which only the stream of `queue` uses. That and the memory
  /// of `store` must outlive this.
  ParamSync(const Plan& plan, const ParamStore& store, World& world, const OpContext& queue,
            DeviceKind device);

  /// Starts the gathers of one block after everything that `compute` holds so far.
  void start(int block, Stream& compute);
  /// Of the buffer in which parameters arrive together.
  std::int64_t bytes() const { return packed_.bytes().numel(); }
  /// The context's stream continues after them, and rounds matrices to the compute copy.
  void wait(int block, const OpContext& context, double deadline_seconds);

  /// The optimizer has run: what other ranks updated is old here.
  void expire() { current_ = false; }
  /// Gathers everything and waits, unless that has been done since the last update. Collective.
  void complete(const OpContext& context, double deadline_seconds);

 private:
  struct Gather {
    Group* group = nullptr;
    Divided values;
    std::vector<Move> in, out;  // of those that travel together
  };
  struct Send {
    int owner = 0;  // rank of dp
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
  Group* replicas_;  // null: there is one
  Slab packed_;
  std::vector<Block> blocks_;
  bool current_ = true;
};

}  // namespace trainctl
