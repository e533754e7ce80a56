// Parameters split by rows whose slices travel in one call, and the buffers for it.
#pragma once

#include <vector>

#include "plan/ownership/ownership.h"

namespace trainctl {

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

/// The same for a gather, in which only weights of one type travel together.
std::vector<RowExchange> row_gathers(const Plan& plan, const StagePlan& stage,
                                     const OwnershipTable& table, const GatherBlock& block);

/// Of a bucket that is split into equal slices: what rank number `rank` of those that share it owns
/// of the parameters whose type is not the one that most layers compute in.
struct ApartPiece {
  int parameter = 0;
  Slice part;
};
std::vector<ApartPiece> pieces_apart(DType compute, const StagePlan& stage,
                                     const GatherBlock& block, std::int64_t ranks,
                                     std::int64_t rank);
/// The most elements of these that any rank owns: each rank sends as many.
std::int64_t most_apart(DType compute, const StagePlan& stage, const GatherBlock& block,
                        std::int64_t ranks);

/// The sizes of two buffers: that in which a stage's gradients are packed, one sum at a time, in
/// elements, and that into which parameters are gathered together, in bytes.
std::int64_t packed_gradients(const Plan& plan, const StagePlan& stage,
                              const OwnershipTable& table);
std::int64_t packed_parameters(const Plan& plan, const StagePlan& stage,
                               const OwnershipTable& table);

}  // namespace trainctl
