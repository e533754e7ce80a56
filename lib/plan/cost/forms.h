// How a stage keeps its layers (plan/tables/recompute_form.h), with the rows and memory needed.
#pragma once

#include <functional>
#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/rules/resolve.h"

namespace trainctl {

/// The forms that sections recompute and offload give to stage number `stage`, whose units and
/// schedule are known. With select auto, nothing is recomputed yet. The first offload.num_layers
/// layers of the model are on the host, on any stage, unless the plan picks the layers.
StageForms given_forms(const Plan& plan, int stage, const RecomputeConfig& recompute,
                       const OffloadConfig& offload);

/// The form of a block that recomputes `parts`, with the other options of section recompute.
BlockForm form_with(const Plan& plan, const RecomputeConfig& recompute, std::uint8_t parts);

/// Refines the schedule of `rows`, which is stage number `stage` of the plan or a copy, for its
/// forms; then makes its activation table and assigns memory. `like` is the same stage with another
/// number of micro-batches, with which it shares memory for parameters and gradients, or nullptr.
void lay_out(const Plan& plan, int stage, const MoveConfig& config, StagePlan& rows,
             const StagePlan* like = nullptr);

/// Returns a function that counts the bytes of activations that lay_out() would place for a stage
/// with other forms, without placing them. The rows used for this have no gathers and sums, which
/// do not affect the lifetimes of activations. `plan` must outlive the function and have the
/// stage's tables and schedule.
std::function<SlotBytes(const StageForms&)> slot_counter(const Plan& plan, int stage,
                                                         const MoveConfig& config);
/// Counts the bytes of a stage's activations in its own forms, for which its rows are refined.
SlotBytes count_slots(const Plan& plan, int stage);

/// The shapes of the first rows of a stage's activation table, for micro-batches with `length`
/// tokens a sequence; later rows have the same shape for every length. `rows` is the plan of stage
/// number `stage`.
std::vector<Shape> shapes_at(const Plan& plan, int stage, const StagePlan& rows,
                             std::int64_t length);

/// The bytes of one layer in one form on a rank (F forward, B and W backward, R recomputation).
struct FormBytes {
  std::int64_t kept = 0;     // bytes per micro-batch, between F and B
  std::int64_t once = 0;     // bytes while the layer runs F, and from R to W
  std::int64_t on_host = 0;  // bytes per micro-batch in host memory, between F and B
};
FormBytes form_bytes(const Plan& plan, int stage, int unit, const BlockForm& form);

/// A form of one block as a trade of bytes against seconds.
struct FormPoint {
  std::int64_t kept = 0;  // bytes per micro-batch
  double seconds = 0;     // seconds of recomputation (R)
  int option = 0;         // number of the form for the caller
};
/// The lower convex hull of the points, from the most bytes to the fewest: each saves bytes at a
/// higher price per byte than the one before, and no mixture of two other forms is better.
std::vector<FormPoint> hull_of(std::vector<FormPoint> all);

/// Savings of bytes along the hulls of several blocks, cheapest first.
class FormSavings {
 public:
  struct Step {
    std::int64_t bytes = 0;  // saved bytes
    double seconds = 0;      // additional seconds
    std::size_t block = 0;
    double price = 0;  // seconds of a byte
  };

  /// Adds all steps of a block with this number of kept micro-batches. `alike`: number of such
  /// blocks, whose steps are taken together.
  void add(std::size_t block, const std::vector<FormPoint>& hull, std::int64_t microbatches,
           std::int64_t alike = 1);
  /// The least seconds that save `over` bytes, if one step may be taken partly. Infinite if all
  /// steps together save less.
  double seconds(std::int64_t over) const;
  std::int64_t bytes() const { return sums_.empty() ? 0 : sums_.back().bytes; }  // total
  const std::vector<Step>& steps() const { return steps_; }

 private:
  std::vector<Step> steps_;
  std::vector<Step> sums_;  // cumulative sums of steps_
};

/// The number of micro-batches that each unit keeps at the end of the F after which `blocks` of a
/// stage keep the most: by unit, up to the last of `blocks`; 0 for units that are not in `blocks`.
/// Sets `fullest` to this F, unless it is nullptr.
std::vector<std::int64_t> kept_at_most(const StagePlan& rows, const std::vector<int>& blocks,
                                       Action* fullest = nullptr);
/// The fewest bytes that a rank of the stage needs for its passes at that moment, besides the bytes
/// kept by its `blocks`, for any recomputation. The stage's rows must be refined.
std::int64_t min_beside_blocks(const Plan& plan, int stage, const std::vector<int>& blocks);

/// Whether the plan picks the forms (recompute.select auto).
bool picks_forms(const RecomputeConfig& recompute);
/// Whether it also picks which of the first offload.num_layers layers are on the host.
bool picks_host(const RecomputeConfig& recompute, const OffloadConfig& offload);

/// The costs of the usual forms and of the forms in use, each as if every layer of the stage had
/// it: first for dense layers, then for layers with experts, sorted by the bytes that a layer
/// keeps.
std::vector<RecomputeCost> compare_forms(const Plan& plan, int stage, const MoveConfig& config,
                                         const ClusterConfig& cluster);

// Adds a stage's gathers, releases and sums to its rows, and lets them share memory.

/// Fills in sums, gathers, reads, rings and actions of stage `rows`, whose tables, schedule and
/// forms are complete. `input` has the same forms. `like`: see lay_out.
void lay_moves(const Plan& plan, const ScheduleInput& input, const MoveConfig& config,
               StagePlan& rows, const StagePlan* like);

// The plan of a decoder: the forward pass of a few tokens of one sequence.

/// A plan with the layout of `plan` for passes of one sequence with up to `tokens` tokens, in a
/// text of up to `positions` tokens (at most the model's). Activations are laid out for
/// forward_actions. Tensor parallelism is as in training, but nothing is split by token, since
/// there are too few tokens. The rows of whole steps are left out.
Plan decoding_plan(const Plan& plan, std::int64_t tokens, std::int64_t positions);

}  // namespace trainctl
