// What a signal leads to in each part of a training run.
#pragma once

#include "base/error.h"
#include "run/directory/signals.h"

namespace trainctl {

inline constexpr SignalEffect before_first_step{
    .text = "interrupted before the first step, there is nothing to save",
    .requeue_code = static_cast<int>(ExitCode::interrupted),
    .interrupt_code = static_cast<int>(ExitCode::interrupted),
    .at_once = true};

/// A run that goes on from a checkpoint.
inline constexpr SignalEffect before_going_on{
    .text = "interrupted before the first step of this session, there is nothing new to save",
    .requeue_code = static_cast<int>(ExitCode::requeue),
    .interrupt_code = static_cast<int>(ExitCode::interrupted),
    .at_once = true};

inline constexpr SignalEffect stop_after_step{
    .text = "the step ends and a checkpoint is saved",
    .requeue_code = static_cast<int>(ExitCode::requeue),
    .interrupt_code = static_cast<int>(ExitCode::interrupted)};

inline constexpr SignalEffect after_last_step{
    .text = "the last step is done, the rest is still written"};

}  // namespace trainctl
