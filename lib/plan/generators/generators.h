// The generators of schedules. Each emits fetch, F, B, W and message rows for whole chunks of one
// stage, then the step. Neighbouring message rows form one batch. Any positive number of
// micro-batches is allowed, unless stated otherwise.
#pragma once

#include <iterator>
#include <vector>

#include "config/schema/choices.h"
#include "plan/schedule/schedule.h"

namespace trainctl {

/// One stage: F, B, W of one micro-batch after the other (gradient accumulation); with input.legs,
/// F of the next micro-batch comes directly before B.
std::vector<Action> schedule_no_pipelining(const ScheduleInput& input);
/// GPipe: all forwards, then all backwards (Huang et al. 2019); with chunks, ordered by (chunk,
/// micro-batch).
std::vector<Action> schedule_gpipe(const ScheduleInput& input);
/// 1F1B: alternates one forward and one backward (Narayanan et al. 2021, 2.2) after a warm-up of
/// min(stages - stage - 1, M) forwards. With V > 1 chunks per stage, the warm-up is min(M V, 2
/// (stages - stage - 1) + (V - 1) group_size); group_size is from `stages` to M, and M % group_size
/// is 0 or at least `stages`. With input.legs this holds for any V, and the warm-up is one longer.
std::vector<Action> schedule_1f1b(const ScheduleInput& input);
/// ZB-H1 (Qi et al. 2024, 3.1): W is separate from B and fills the bubbles; the number of kept
/// activations is that of 1F1B. With several chunks, it uses the interleaved order and its groups.
std::vector<Action> schedule_zb_h1(const ScheduleInput& input);
/// ZB-V (Qi et al. 2024, 6): two chunks per stage, down the stages and back up, W separate from B.
/// Messages are single, because with batches stages would wait for each other.
std::vector<Action> schedule_zb_v(const ScheduleInput& input);

/// F of one micro-batch through all chunks, with single messages that are awaited at once, and no
/// step: for evaluation and generation.
std::vector<Action> schedule_forward_only(const ScheduleInput& input);

using Generator = std::vector<Action> (*)(const ScheduleInput&);

/// In the order of config/schema/schedules.h.
inline constexpr Generator generators[] = {schedule_1f1b, schedule_gpipe, schedule_zb_h1,
                                           schedule_zb_v};
static_assert(std::size(generators) == std::size(schedules));

/// The rows of the given scheduler; with one stage, those of schedule_no_pipelining().
std::vector<Action> make_schedule(PipelineScheduler scheduler, const ScheduleInput& input);

}  // namespace trainctl
