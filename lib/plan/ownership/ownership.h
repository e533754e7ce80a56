// Assigns the elements of each parameter to the ranks that sum, update, send and save them, as one
// rank sees it from its stage's optimizer shards. Gradient sums, norm, optimizer, gathers,
// checkpoints and comparison all read this table.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/at.h"
#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/tables/shard.h"

namespace trainctl {

/// The exchange of row slices of parameters that the same ranks share. The R replicas of a
/// parameter, in rank order, hold its slices 0 to s - 1 cyclically: s neighbours share one copy of
/// the state. A gradient is complete after a reduce-scatter over `scatter` and a sum of the result
/// over `mirror`. All groups are ascending world ranks and contain this rank.
struct ShardRoute {
  std::int64_t slices = 1;   // s, the number of slices
  std::int64_t slice = 0;    // slice that this rank updates
  std::int64_t first = 0;    // first slice that `scatter` divides
  std::int64_t step = 1;     // slices per rank of `scatter`
  std::vector<int> scatter;  // neighbours among ranks that read different data
  std::vector<int> mirror;   // ranks at the same place of other `scatter` groups
  std::vector<int> gather;   // the s ranks that share a copy of the state
  GroupKind scatter_kind, mirror_kind, gather_kind;
  std::int64_t copies = 1;  // R / s copies of the state
  std::int64_t copy = 0;    // index of this rank's copy
};

struct Ownership {         // parts of one parameter on this rank
  Slice scattered;         // rows: part that `scatter` divides among its ranks
  Slice summed;            // part whose gradient is complete here after the bucket's sum
  Slice owned;             // part that this rank updates, with its optimizer values
  std::int64_t state = 0;  // index of the owned part in a buffer of optimizer values
  bool counts = false;     // whether this rank adds `owned` to the norm for all its owners
  int route = -1;          // index into OwnershipTable::routes for kind rows, or -1
};

struct OwnershipTable {
  std::vector<Ownership> parameters;
  std::vector<ShardRoute> routes;
  std::int64_t state_length = 0;  // elements of a buffer of optimizer values
  bool divided = false;           // some optimizer state is not on every rank

  /// The route of a parameter that is split by rows.
  const ShardRoute& route_of(int parameter) const {
    return at(routes, at(parameters, parameter).route);
  }
};

/// By ParamSpec::expert: the ranks over which a parameter's gradient is summed, ascending, with
/// this rank. They hold equal shares of the parameter and see different data.
std::array<std::vector<int>, 2> data_ranks(const Mesh& mesh, std::int64_t rank);

/// `plan` must have the mesh and, for the rank's stage, parameters, shards and buckets.
OwnershipTable make_ownership(const Plan& plan, std::int64_t rank);

/// Whether the bucket rule fuses calls. Otherwise each parameter is exchanged alone, directly from
/// its memory.
inline bool fuses_rows(BucketRule rule) {
  return rule == BucketRule::comm_fusion || rule == BucketRule::layers;
}

/// The parameters of each exchange of those that are split by rows: each parameter alone or, if
/// `fused`, those with equal routes together.
std::vector<std::vector<int>> row_exchanges(const OwnershipTable& table,
                                            const std::vector<int>& parameters, bool fused);

/// The parameters of each exchange of a gather; only weights of equal dtype are fused.
std::vector<std::vector<int>> row_gathers(const Plan& plan, const StagePlan& stage,
                                          const OwnershipTable& table, const GatherBlock& block);

/// The parts of parameters, by parameter, that rank number `rank` of the bucket's ranks owns in a
/// bucket in equal slices, and that have another dtype than most layers compute in.
std::map<int, Slice> parts_apart(DType compute, const StagePlan& stage, const GatherBlock& block,
                                 std::int64_t ranks, std::int64_t rank);

/// The largest number of parts_apart() elements on a rank; every rank sends this number.
std::int64_t max_apart(DType compute, const StagePlan& stage, const GatherBlock& block,
                       std::int64_t ranks);

/// The sizes of two buffers: for packed gradients of a stage, one sum at a time, in elements, and
/// for parameters that are gathered together, in bytes.
std::int64_t packed_gradients(const Plan& plan, const StagePlan& stage,
                              const OwnershipTable& table);
std::int64_t packed_parameters(const Plan& plan, const StagePlan& stage,
                               const OwnershipTable& table);

/// The shape of a parameter without padding rows of the vocabulary, which depend on the number of
/// tensor-parallel ranks and are in no file.
Shape saved_shape(const ParamSpec& parameter, const ModelShape& model);

/// Whether checkpoints during a run are written from a copy, for which memory is planned.
inline bool saves_in_background(const CheckpointConfig& saves) {
  return saves.asynchronous && (saves.every > 0 || saves.every_minutes > 0);
}

/// By parameter of its stage, the boxes that a rank writes to a checkpoint; all ranks together
/// write each element of the model once. A rank writes only parts that it updates, whose masters
/// and optimizer values are up to date. Replicas with equal values divide the rows, and small
/// parameters are assigned to them cyclically. `plan` as for make_ownership, `table` of the same
/// rank.
std::vector<std::vector<Box>> saved_parts(const Plan& plan, const OwnershipTable& table,
                                          std::int64_t rank);

/// The bytes of all parts; `table` is the parameter table of the stage.
std::int64_t saved_bytes(const std::vector<std::vector<Box>>& parts,
                         const std::vector<ParamSpec>& table, const OptimizerConfig& optimizer);
/// The bytes of the saved state of the whole model.
std::int64_t saved_bytes(const Plan& plan, const OptimizerConfig& optimizer);

}  // namespace trainctl
