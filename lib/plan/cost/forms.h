// How a stage keeps its layers (plan/tables/recompute_form.h), and the rows and memory that follow.
#pragma once

#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/rules/resolve.h"

namespace trainctl {

/// The forms that sections recompute and offload give to stage number `stage`, whose units and
/// schedule are known. With select auto: nothing is repeated yet. The first offload.num_layers of
/// the model are on the host, whichever stage has them, unless the plan picks them.
StageForms given_forms(const Plan& plan, int stage, const RecomputeConfig& recompute,
                       const OffloadConfig& offload);

/// The form of a block whose `parts` are recomputed in the way that the options of section
/// recompute set.
BlockForm form_with(const Plan& plan, const RecomputeConfig& recompute, std::uint8_t parts);

/// Refines the schedule of `rows`, which is stage number `stage` of the plan or a copy, for its
/// forms, makes the rows of its activations, and places them. `like`: the same stage with another
/// number of micro-batches, whose memory for parameters and gradients it shares; nullptr if there
/// is no such stage.
void lay_out(const Plan& plan, int stage, const MoveConfig& config, StagePlan& rows,
             const StagePlan* like = nullptr);

/// Bytes of the activations that lay_out places for a stage whose layers have other forms, without
/// placing them: it counts the slots of rows that are as lay_out's without gathers and sums, which
/// do not change what lives when.
class StageBytes {
 public:
  /// `plan`, which must outlive it, has the stage's tables and schedule.
  StageBytes(const Plan& plan, int stage, const MoveConfig& config);
  SlotBytes of(const StageForms& forms) const;

 private:
  std::vector<Action> rows_of(const StageForms& forms) const;

  const Plan& plan_;
  int stage_;
  int buffered_ = 0;              // copies to and from the host that are under way during one row
  std::vector<Action> repeated_;  // where all layers are recomputed and none is on the host
};

/// Counts the slots of a stage in its own forms, for which its rows are refined.
SlotBytes count_slots(const Plan& plan, int stage);

/// The shapes of the first rows of `rows` (stage number `stage`) for micro-batches of `length`
/// tokens a sequence; those that are missing have the same for every length.
std::vector<Shape> shapes_at(const Plan& plan, int stage, const StagePlan& rows,
                             std::int64_t length);

/// The bytes that one layer in a form needs on a rank.
struct FormBytes {
  std::int64_t kept = 0;     // of each micro-batch between F and B
  std::int64_t once = 0;     // of a layer while it runs F, and between R and W
  std::int64_t on_host = 0;  // of each micro-batch between F and B, in memory of the host
};
FormBytes form_bytes(const Plan& plan, int stage, int unit, const BlockForm& form);

/// A form of one block as bytes against seconds.
struct FormPoint {
  std::int64_t kept = 0;  // of a micro-batch
  double seconds = 0;     // of its R
  int option = 0;         // its number, for who asks
};
/// The forms of which no mixture of two others is better, from the one that keeps most on: each
/// keeps less than the one before, at a higher price for a byte.
std::vector<FormPoint> hull_of(std::vector<FormPoint> all);

/// Steps along the hulls of some blocks, the cheapest first.
class FormSavings {
 public:
  struct Step {
    std::int64_t bytes = 0;  // that it saves
    double seconds = 0;      // that it costs
    std::size_t block = 0;
    double price = 0;  // seconds of a byte
  };

  /// Adds all steps of a block of which this number of micro-batches is kept; `alike`: the number
  /// of such blocks, whose steps are taken together.
  void add(std::size_t block, const std::vector<FormPoint>& hull, std::int64_t microbatches,
           std::int64_t alike = 1);
  /// The least seconds that save `over` bytes, if a part of one step may be taken. Infinite where
  /// all steps together save less.
  double seconds(std::int64_t over) const;
  std::int64_t bytes() const { return sums_.empty() ? 0 : sums_.back().bytes; }  // of all steps
  const std::vector<Step>& steps() const { return steps_; }

 private:
  std::vector<Step> steps_;
  std::vector<Step> sums_;  // of the steps up to each
};

/// The end of the F after which the blocks of a stage keep most micro-batches, and how many each of
/// them keeps then.
struct FullestMoment {
  MicrobatchOfChunk pass{};
  std::vector<std::int64_t> kept{};  // by unit
};
FullestMoment fullest_moment(const StagePlan& rows, const std::vector<int>& blocks);

/// The smallest number of bytes that a rank of the stage needs for its passes at that moment,
/// whatever its blocks repeat, in addition to the bytes that these keep. The stage's rows are
/// refined.
std::int64_t min_beside_blocks(const Plan& plan, int stage, const FullestMoment& moment);

/// Whether the plan picks the forms: recompute.select auto.
bool picks_forms(const RecomputeConfig& recompute);
/// Whether it also picks which of the first offload.num_layers are on the host.
bool picks_host(const RecomputeConfig& recompute, const OffloadConfig& offload);

/// The costs of the usual forms and of those in use where every layer of the stage has the same
/// one, for its dense layers and then for those with experts, each in the order of the bytes that a
/// layer keeps.
std::vector<RecomputeCost> compare_forms(const Plan& plan, int stage, const MoveConfig& config,
                                         const ClusterConfig& cluster);

// The rows of a stage with what they gather, free and sum, and the memory that these moves share.

/// Fills in sums, gathers, reads, rings and actions of a stage, whose tables, schedule and forms
/// are there. `input` has the forms. `like`: see lay_out.
void lay_moves(const Plan& plan, const ScheduleInput& input, const MoveConfig& config,
               StagePlan& rows, const StagePlan* like);

// The plan of a decoder: the forward pass of a few tokens of one sequence.

/// The layout of `plan` for passes of one sequence with up to `tokens` tokens, of a text of up to
/// `positions` (or as many as the model has): its own activations, laid out for forward_actions.
/// Tensor parallelism works as in training, but the stream and operators are not split by token,
/// since there are too few. Rows of whole steps are gone.
Plan decoding_plan(const Plan& plan, std::int64_t tokens, std::int64_t positions);

}  // namespace trainctl
