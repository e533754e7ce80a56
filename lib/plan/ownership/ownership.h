// Who sums, updates and hands on which elements of each parameter: the one table that gradient
// sums, norm, optimizer, gathers and comparison read. One rank's view of its stage's optimizer
// shards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace trainctl {

/// How the rows of parameters that the same ranks share travel. The R replicas of a parameter, in
/// rank order, hold its slices 0 .. s - 1 in turn: s neighbours share one copy of the state. A
/// gradient is complete once `scatter` has reduce-scattered and `mirror` summed what it left. All
/// groups are world ranks, ascending, with the rank itself.
struct ShardRoute {
  std::int64_t slices = 1;   // s
  std::int64_t slice = 0;    // that this rank updates
  std::int64_t first = 0;    // the first one that is scattered here
  std::int64_t step = 1;     // slices that each rank of `scatter` gets
  std::vector<int> scatter;  // neighbours among the ranks that differ in data
  std::vector<int> mirror;   // across such neighbourhoods
  std::vector<int> gather;   // the s ranks that share a copy
  std::string scatter_kind;  // as CollectiveUse::group
  std::string mirror_kind;
  std::string gather_kind;
  bool first_copy = false;  // of those that update the same slices
};

struct Ownership {         // of one parameter
  Slice scattered;         // rows: what `scatter` divides among its ranks
  Slice summed;            // whose gradient is complete on this rank once its bucket is summed
  Slice owned;             // of these, what the rank updates and holds optimizer values of
  std::int64_t state = 0;  // where these values begin in a buffer of optimizer values
  bool counts = false;  // of all ranks that own the same elements, this one adds them to the norm
  int route = -1;       // rows: into OwnershipTable::routes
};

struct OwnershipTable {
  std::vector<Ownership> parameters;
  std::vector<ShardRoute> routes;
  std::int64_t state_length = 0;  // elements of a buffer of optimizer values
  bool divided = false;           // some optimizer state is not on every rank
};

/// `plan` needs mesh, and of the rank's stage parameters, shards and flat layout.
OwnershipTable make_ownership(const Plan& plan, std::int64_t rank);

}  // namespace trainctl
