// Parameters cut by rows whose slices travel in one call, and the buffers that this takes.
#pragma once

#include <vector>

#include "plan/ownership/ownership.h"

namespace trainctl {

struct RowExchange {
  int route = 0;  // into OwnershipTable::routes
  std::vector<int> parameters;
};

/// Whether the rule asks for fused calls. Otherwise each parameter travels alone, from where it
/// lies.
inline bool fuses_rows(BucketRule rule) {
  return rule == BucketRule::comm_fusion || rule == BucketRule::layers;
}

/// Those of `parameters` that are cut by rows: each alone, or `fused`, those of one route together.
std::vector<RowExchange> row_exchanges(const OwnershipTable& table,
                                       const std::vector<int>& parameters, bool fused);

/// Elements of the buffer in which a stage's gradients are packed, one sum at a time, and of that
/// in which parameters arrive together.
std::int64_t packed_gradients(const Plan& plan, const StagePlan& stage,
                              const OwnershipTable& table);
std::int64_t packed_parameters(const Plan& plan, const StagePlan& stage,
                               const OwnershipTable& table);

}  // namespace trainctl
