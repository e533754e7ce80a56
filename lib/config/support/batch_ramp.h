// The batches of a run's steps: one size, or a ramp up to it (train.rampup_batch_size).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"

namespace trainctl {

/// Steps one after another with equally large batches.
struct RampPart {
  std::int64_t first_step = 0;    // steps before it
  std::int64_t first_sample = 0;  // sequences in them
  std::int64_t batch = 0;         // sequences of a step over all ranks
  friend bool operator==(const RampPart&, const RampPart&) = default;
};

/// The steps and samples that a run has done when its batches are asked for.
struct BatchesDone {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
};

/// From `done` on, in order; the last part has no end and the full batch. As Megatron-LM's
/// --rampup-batch-size: a step that begins after c samples has the batch start + increment *
/// floor(c / (samples / n)) with n = (global_batch_size - start) / increment, and from `samples` on
/// the full one. `unit`: micro_batch_size x data_parallel, to whose multiples
/// decrease_batch_size_if_needed rounds each batch down. Without a ramp, or with one that breaks
/// its rules, one part.
std::vector<RampPart> batch_ramp(const TrainConfig& train, std::int64_t unit,
                                 BatchesDone done = {});

/// The most increments of a ramp.
inline constexpr std::int64_t max_increments = 256;

/// Why the three numbers of a ramp are refused, for themselves or together with global_batch_size;
/// none if they are fine.
std::optional<Problem> problem_of_ramp(const TrainConfig& train);

/// The part that the step after `steps` completed ones belongs to.
const RampPart& part_after(const std::vector<RampPart>& parts, std::int64_t steps);
/// Sequences in the first `steps` steps, not before those that were done.
std::int64_t samples_in(const std::vector<RampPart>& parts, std::int64_t steps);
/// The least number of steps with at least `samples` sequences.
std::int64_t steps_with(const std::vector<RampPart>& parts, std::int64_t samples);

}  // namespace trainctl
