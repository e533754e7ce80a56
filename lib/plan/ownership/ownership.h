// Which rank sums, updates and passes on which elements of each parameter, from one rank's view of
// its stage's optimizer shards: the one table that gradient sums, norm, optimizer, gathers and
// comparison read.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace trainctl {

/// How the row slices of parameters that are shared by the same ranks travel. The R replicas of a
/// parameter, in rank order, hold its slices 0 .. s - 1 in turn: s neighbours share one copy of the
/// state. A gradient is complete after a reduce-scatter over `scatter` and a sum of the result over
/// `mirror`. All groups are ascending world ranks and contain this rank.
struct ShardRoute {
  std::int64_t slices = 1;   // s
  std::int64_t slice = 0;    // the slice that this rank updates
  std::int64_t first = 0;    // the first slice that is scattered here
  std::int64_t step = 1;     // slices per rank of `scatter`
  std::vector<int> scatter;  // neighbours among the ranks that read different data
  std::vector<int> mirror;   // the same place in the other neighbourhoods
  std::vector<int> gather;   // the s ranks that share a copy
  GroupKind scatter_kind, mirror_kind, gather_kind;
  std::int64_t copies = 1;  // R / s neighbourhoods hold the same slices
  std::int64_t copy = 0;    // which of them is this rank's
};

struct Ownership {  // of one parameter
  Slice scattered;  // rows: the part that `scatter` divides among its ranks
  Slice summed;     // the part whose gradient is complete on this rank after its bucket's sum
  Slice owned;      // the part that this rank updates and holds optimizer values of
  std::int64_t state = 0;  // where these values begin in a buffer of optimizer values
  bool counts = false;  // this rank adds them to the norm, for all ranks that own the same elements
  int route = -1;       // rows: index into OwnershipTable::routes
};

struct OwnershipTable {
  std::vector<Ownership> parameters;
  std::vector<ShardRoute> routes;
  std::int64_t state_length = 0;  // elements of a buffer of optimizer values
  bool divided = false;           // some optimizer state is not on every rank
};

/// The ranks that see other data than this one and hold the same share of a parameter, this one
/// among them, ascending: its gradient is summed over them. All parameters of experts have the
/// same, and so have all others: each list is made once.
class DataRanks {
 public:
  DataRanks(const Mesh& mesh, std::int64_t rank) : mesh_(mesh), rank_(rank) {}
  const std::vector<int>& of(const ParamSpec& parameter);

 private:
  const Mesh& mesh_;
  std::int64_t rank_;
  std::array<std::vector<int>, 2> ranks_;  // by ParamSpec::expert; empty until asked for
};

/// `plan` must have the mesh and, for the rank's stage, parameters, shards and buckets.
OwnershipTable make_ownership(const Plan& plan, std::int64_t rank);

}  // namespace trainctl
