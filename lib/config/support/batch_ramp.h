// The batch sizes of a run's steps: one size, or a ramp up to it (train.rampup_batch_size).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"

namespace trainctl {

/// Successive steps with equal batch sizes.
struct RampPart {
  std::int64_t first_step = 0;    // number of steps before this part
  std::int64_t first_sample = 0;  // number of sequences before this part
  std::int64_t batch = 0;         // sequences per step over all ranks
  friend bool operator==(const RampPart&, const RampPart&) = default;
};

/// The parts after the steps and samples that are done, in order; the last part has no end and the
/// full batch. As Megatron-LM's --rampup-batch-size: a step after c samples has the batch start +
/// increment * floor(c / (samples / n)) with n = (global_batch_size - start) / increment; from
/// `samples` on, the batch is full. decrease_batch_size_if_needed rounds each batch down to a
/// multiple of `unit`, micro_batch_size x data_parallel. Without a ramp, or for an invalid one, a
/// single part.
std::vector<RampPart> batch_ramp(const TrainConfig& train, std::int64_t unit,
                                 std::int64_t steps_done = 0, std::int64_t samples_done = 0);

/// The largest number of increments in a ramp.
inline constexpr std::int64_t max_increments = 256;

/// Why the three numbers of a ramp are refused, alone or together with global_batch_size; nullopt
/// if they are valid.
std::optional<Problem> problem_of_ramp(const TrainConfig& train);

/// The part with the step after `steps` completed ones.
const RampPart& part_after(const std::vector<RampPart>& parts, std::int64_t steps);
/// The number of sequences in the first `steps` steps; the steps must include the completed ones.
std::int64_t samples_in(const std::vector<RampPart>& parts, std::int64_t steps);
/// The least number of steps with at least `samples` sequences.
std::int64_t steps_with(const std::vector<RampPart>& parts, std::int64_t samples);

}  // namespace trainctl
