// Checks that the ranks that hold the same part of a parameter have the same values: data-parallel
// replicas, tensor-parallel ranks that hold a whole parameter or share key and value heads, and the
// two copies of a tied embedding. Compared are the weights, as far as they stay on the ranks, and
// the masters of what each of these ranks updates.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/world.h"
#include "engine/parameters/param_store.h"
#include "plan/plan.h"

namespace trainctl {

class ReplicaCheck {
 public:
  /// Collective over all ranks: forms its own groups. `plan` and `store` must outlive this object.
  ReplicaCheck(const Plan& plan, const ParamStore& store, World& world);

  /// Compares hashes. Throws Error{peer} naming the first parameter that differs and the ranks that
  /// disagree with the first that holds it. Collective; no other communication may be in flight.
  void run(std::int64_t completed_steps) const;

 private:
  /// Parameters whose parts on this rank are held by the same ranks.
  struct Shared {
    std::vector<int> ranks;
    std::vector<int> parameters;
    std::unique_ptr<Group> group;
  };
  std::uint64_t hash_of(std::span<const int> parameters) const;

  const ParamStore& store_;
  const std::vector<OptimizerShard>& shards_;
  std::vector<Shared> shared_;
};

/// All ranks, ascending, that hold the same elements of `parameter` as `rank`.
std::vector<int> holders_of(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank);

}  // namespace trainctl
