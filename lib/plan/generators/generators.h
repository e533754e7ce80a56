// The schedules' generators. Each emits fetch, F, B, W and message rows for whole chunks of one
// stage, then the step. Neighbouring message rows are one batch. Any positive number of
// micro-batches is allowed, unless stated otherwise.
#pragma once

#include <iterator>
#include <vector>

#include "config/schema/choices.h"
#include "plan/schedule/schedule.h"

namespace trainctl {

/// One stage: F, B, W for one micro-batch after the other (gradient accumulation); with input.legs
/// F of the next one comes right before B.
std::vector<Action> schedule_no_pipelining(const ScheduleInput& input);
/// All forwards, then all backwards (Huang et al. 2019); with chunks, ordered by (chunk,
/// micro-batch).
std::vector<Action> schedule_gpipe(const ScheduleInput& input);
/// One forward, one backward (Narayanan et al. 2021, 2.2): warm-up of min(stages - stage - 1, M).
/// With several chunks per stage a warm-up of min(M V, 2 (stages - stage - 1) + (V - 1)
/// group_size); group_size from `stages` to M; M % group_size is 0 or at least `stages`. With
/// input.legs the same with any number of chunks, and a warm-up of one more.
std::vector<Action> schedule_1f1b(const ScheduleInput& input);
/// ZB-H1 (Qi et al. 2024, 3.1): W separate from B, filling the bubbles; kept activations as in
/// 1F1B. With several chunks the same over the interleaved order, with its groups.
std::vector<Action> schedule_zb_h1(const ScheduleInput& input);
/// ZB-V (Qi et al. 2024, 6): two chunks per stage, down the stages and back up, W separate from B.
/// Its messages are exchanged one by one: in batches, stages would wait for each other.
std::vector<Action> schedule_zb_v(const ScheduleInput& input);

/// F of one micro-batch through all chunks, each message by itself and awaited at once, without a
/// step: for evaluation and generation.
std::vector<Action> schedule_forward_only(const ScheduleInput& input);

using Generator = std::vector<Action> (*)(const ScheduleInput&);

/// In the order of config/schema/schedules.h.
inline constexpr Generator generators[] = {schedule_1f1b, schedule_gpipe, schedule_zb_h1,
                                           schedule_zb_v};
static_assert(std::size(generators) == std::size(schedules));

/// The rows of the schedule with that name; with one stage those of schedule_no_pipelining().
std::vector<Action> make_schedule(PipelineScheduler scheduler, const ScheduleInput& input);

}  // namespace trainctl
