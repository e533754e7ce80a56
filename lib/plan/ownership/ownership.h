// Which rank sums, updates, passes on and saves which elements of each parameter, from one rank's
// view of its stage's optimizer shards: the one table that gradient sums, norm, optimizer, gathers,
// checkpoints and comparison read.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/tables/shard.h"

namespace trainctl {

/// How the row slices of parameters that are shared by the same ranks travel. The R replicas of a
/// parameter, in rank order, hold its slices 0 .. s - 1, one after the other: s neighbours share
/// one copy of the state. A gradient is complete after a reduce-scatter over `scatter` and a sum of
/// the result over `mirror`. All groups are ascending world ranks and contain this rank.
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
/// among them, ascending, by ParamSpec::expert: its gradient is summed over them.
std::array<std::vector<int>, 2> data_ranks(const Mesh& mesh, std::int64_t rank);

/// `plan` must have the mesh and, for the rank's stage, parameters, shards and buckets.
OwnershipTable make_ownership(const Plan& plan, std::int64_t rank);

/// Parameters split by rows whose slices travel in one call.
struct RowExchange {
  int route = 0;  // index into OwnershipTable::routes
  std::vector<int> parameters;
};

/// Whether the bucket rule fuses calls. Otherwise each parameter travels on its own, directly from
/// its memory.
inline bool fuses_rows(BucketRule rule) {
  return rule == BucketRule::comm_fusion || rule == BucketRule::layers;
}

/// The parameters that are split by rows: each on its own or, if `fused`, those of one route
/// together.
std::vector<RowExchange> row_exchanges(const OwnershipTable& table,
                                       const std::vector<int>& parameters, bool fused);

/// The exchanges of a gather, in which only weights of one type travel together.
std::vector<RowExchange> row_gathers(const Plan& plan, const StagePlan& stage,
                                     const OwnershipTable& table, const GatherBlock& block);

/// A piece of a bucket that is split into equal slices. Rank number `rank` of those that share the
/// bucket owns it, and the type of its parameter is not the one that most layers compute in.
struct ApartPiece {
  int parameter = 0;
  Slice part;
};
std::vector<ApartPiece> pieces_apart(DType compute, const StagePlan& stage,
                                     const GatherBlock& block, std::int64_t ranks,
                                     std::int64_t rank);
/// The most elements of these that any rank owns: each rank sends as many.
std::int64_t max_apart(DType compute, const StagePlan& stage, const GatherBlock& block,
                       std::int64_t ranks);

/// The sizes of two buffers: that in which a stage's gradients are packed, one sum at a time, in
/// elements, and that into which parameters are gathered together, in bytes.
std::int64_t packed_gradients(const Plan& plan, const StagePlan& stage,
                              const OwnershipTable& table);
std::int64_t packed_parameters(const Plan& plan, const StagePlan& stage,
                               const OwnershipTable& table);

/// The shape of a parameter without the padding rows of the vocabulary: these depend on the number
/// of tensor-parallel ranks and are in no file.
Shape saved_shape(const ParamSpec& parameter, const ModelShape& model);

/// Whether checkpoints between two steps are written from a copy, for which memory is planned.
inline bool saves_in_background(const CheckpointConfig& saves) {
  return saves.asynchronous && (saves.every > 0 || saves.every_minutes > 0);
}

struct SavedPart {
  int parameter = 0;  // of the rank's stage
  BoxPart part;       // of the rank's share of it
};

/// The parts that a rank writes to a checkpoint; all ranks together write each element of the model
/// once. They are parts that this rank updates, so their masters and optimizer values are up to
/// date here. Where replicas hold the same values, they divide the rows, or take small parameters
/// one after the other. `plan` as for make_ownership, `table` of the same rank.
std::vector<SavedPart> saved_parts(const Plan& plan, const OwnershipTable& table,
                                   std::int64_t rank);

/// The bytes of all parts, of the stage's table.
std::int64_t saved_bytes(const std::vector<SavedPart>& parts, const std::vector<ParamSpec>& table,
                         const OptimizerConfig& optimizer);
/// The bytes of the whole model.
std::int64_t saved_bytes(const Plan& plan, const OptimizerConfig& optimizer);

}  // namespace trainctl
