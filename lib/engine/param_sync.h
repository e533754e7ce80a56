// Brings the masters that other ranks have updated to this one, bucket by bucket, on the
// communication stream: rows and slices of buckets are gathered among the ranks that share a copy
// of their optimizer state, dealt parameters broadcast by their owners. A step begins with these
// rows; whoever reads parameters between two steps completes them first.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "comm/world.h"
#include "engine/param_store.h"

namespace trainctl {

class ParamSync {
 public:
  /// Collective: forms its own groups, which only `stream` uses. It and the memory of `store` must
  /// outlive this.
  ParamSync(const Plan& plan, const ParamStore& store, World& world, Stream& stream);

  /// Starts the gathers of one bucket after everything that `compute` holds so far.
  void start(int bucket, Stream& compute);
  /// The context's stream continues after them, and rounds matrices to the compute copy.
  void wait(int bucket, const OpContext& context, double deadline_seconds);

  /// The optimizer has run: what other ranks updated is old here.
  void expire() { current_ = false; }
  /// Gathers everything and waits, unless that has been done since the last update. Collective.
  void complete(const OpContext& context, double deadline_seconds);

 private:
  struct Gather {
    Group* group = nullptr;
    Tensor part, whole;
  };
  struct Send {
    int owner = 0;  // rank of dp
    Tensor whole;
  };
  struct Copy {
    Tensor master, compute;
  };
  struct Bucket {
    std::vector<Gather> gathers;
    std::vector<Send> sends;
    std::vector<Copy> copies;
    Event done;
    bool empty() const { return gathers.empty() && sends.empty(); }
  };
  void add(Bucket& bucket, const ParamStore& store, const OptimizerShard& shard, int parameter);
  Group* group_over(const std::string& kind, const std::vector<int>& ranks);

  World& world_;
  Stream& stream_;
  std::vector<int> dp_;
  std::map<std::vector<int>, std::unique_ptr<Group>> groups_;
  std::vector<Bucket> buckets_;
  bool current_ = true;
};

}  // namespace trainctl
