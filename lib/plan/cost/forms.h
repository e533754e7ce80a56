// How a stage keeps its layers (plan/tables/recompute_form.h), and the rows and memory that follow.
#pragma once

#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/rules/resolve.h"

namespace trainctl {

/// What sections recompute and offload say about stage number `stage`, whose units and schedule are
/// known. With select auto: nothing is repeated yet. The first offload.num_layers of the model are
/// on the host, whichever stage has them, unless the plan picks them.
StageForms given_forms(const Plan& plan, int stage, const RecomputeConfig& recompute,
                       const OffloadConfig& offload);

/// Parts of a block that are made again, with what the options of section recompute make of them.
BlockForm form_with(const Plan& plan, const RecomputeConfig& recompute, std::uint8_t parts);

/// Refines the schedule of `rows`, which is stage number `stage` of the plan or a copy, for its
/// forms, makes the rows of its activations, and places them. `like`: the same stage with another
/// number of micro-batches, whose memory for parameters and gradients it shares; null: none.
void lay_out(const Plan& plan, int stage, const MoveConfig& config, StagePlan& rows,
             const StagePlan* like = nullptr);

/// The activations of a stage whose layers have these forms.
ActivationTable activations_of(const Plan& plan, int stage, const StageForms& forms);

/// The shapes of the first rows of `rows` (stage number `stage`) for micro-batches of `length`
/// tokens a sequence; those that are missing have the same for every length.
std::vector<Shape> shapes_at(const Plan& plan, int stage, const StagePlan& rows,
                             std::int64_t length);

/// What one layer in a form needs of a rank.
struct FormBytes {
  std::int64_t kept = 0;     // of each micro-batch between F and B
  std::int64_t once = 0;     // of a layer while it runs F, and between R and W
  std::int64_t on_host = 0;  // of each micro-batch between F and B, in memory of the host
};
FormBytes form_bytes(const Plan& plan, int stage, int unit, const BlockForm& form);

/// For each block of the stage the number of micro-batches that it keeps at the moment at which the
/// stage keeps most, by unit.
std::vector<std::int64_t> kept_at_peak(const StagePlan& rows, const std::vector<int>& blocks);

/// Whether the plan picks the forms: recompute.select auto.
bool picks_forms(const RecomputeConfig& recompute);
/// Whether it also picks which of the first offload.num_layers are on the host.
bool picks_host(const RecomputeConfig& recompute, const OffloadConfig& offload);

/// What the usual forms and those in use cost where every layer of the stage has the same one, for
/// its dense layers and then for those with experts, each in the order of what a layer keeps.
std::vector<RecomputeCost> compare_forms(const Plan& plan, int stage, const MoveConfig& config,
                                         const ClusterConfig& cluster);

}  // namespace trainctl
