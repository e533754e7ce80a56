// Brings the masters that other ranks have updated to this one, after the step of a parallel
// optimizer: rows are gathered among the ranks that hold the same values of a parameter, dealt
// parameters broadcast by their owners. Nothing is left for the next forward to wait for.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "comm/world.h"
#include "engine/param_store.h"

namespace trainctl {

class ParamSync {
 public:
  /// Collective: forms its own groups, which only the stream of run() may use. The memory of
  /// `store` must outlive this.
  ParamSync(const Plan& plan, const ParamStore& store, World& world);

  /// Exchanges the masters and rounds those of matrices to the compute copy.
  void run(const OpContext& context) const;

 private:
  struct Gather {
    Group* group = nullptr;
    Tensor slice, whole;
  };
  struct Send {
    int owner = 0;  // rank of dp_
    Tensor whole;
  };
  struct Copy {
    Tensor master, compute;
  };
  Group* group_over(const Plan& plan, const ReplicaPlace& place, World& world);

  std::map<std::int64_t, std::unique_ptr<Group>> rows_;  // by how many tensor-parallel ranks each
  std::unique_ptr<Group> dp_;                            // null without dealt parameters
  std::vector<Gather> gathers_;
  std::vector<Send> sends_;
  std::vector<Copy> copies_;
};

}  // namespace trainctl
