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

/// The lengths of two buffers: that in which a stage's gradients are packed, one sum at a time, and
/// that into which parameters are gathered together.
std::int64_t packed_gradients(const Plan& plan, const StagePlan& stage,
                              const OwnershipTable& table);
std::int64_t packed_parameters(const Plan& plan, const StagePlan& stage,
                               const OwnershipTable& table);

}  // namespace trainctl
