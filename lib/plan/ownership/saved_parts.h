// Which parts of which parameters a rank writes to a checkpoint: over all ranks, each element of
// the model once.
#pragma once

#include <cstdint>
#include <vector>

#include "config/schema/config.h"
#include "plan/ownership/ownership.h"
#include "plan/tables/box.h"

namespace trainctl {

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

/// Parts that this rank updates, so their masters and optimizer values are up to date here. Where
/// replicas hold the same values, they divide the rows, or take small parameters in turn.
/// `plan` as for make_ownership, `table` of the same rank.
std::vector<SavedPart> saved_parts(const Plan& plan, const OwnershipTable& table,
                                   std::int64_t rank);

/// The bytes of all parts, of the stage's table.
std::int64_t saved_bytes(const std::vector<SavedPart>& parts, const std::vector<ParamSpec>& table,
                         const OptimizerConfig& optimizer);
/// Those of the whole model.
std::int64_t saved_bytes(const Plan& plan, const OptimizerConfig& optimizer);

}  // namespace trainctl
