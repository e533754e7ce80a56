// Where a job runs and where a resumed one starts, as far as its plan depends on it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/kinds.h"

namespace trainctl {

/// Where an update is in the schedules of learning rate and weight decay. Their keys count steps of
/// the size that the run began with. Where a session has other batches, it goes through what is
/// left of the schedules in its own number of steps.
struct SchedulePace {
  std::int64_t updates = 0;  // from these on
  double position = 0;       // is that of the update after them
  double per_update = 1;     // and each further one moves it by so much
  std::int64_t end = 0;      // at the end of the run; 0: train.steps
  /// The place of the update after `completed` ones; exact where nothing changed the pace.
  double at(std::int64_t completed) const {
    return position + per_update * static_cast<double>(completed - updates);
  }
  friend bool operator==(const SchedulePace&, const SchedulePace&) = default;
};

struct RunLength {
  // The length that the run was asked for; neither: steps.
  std::optional<std::int64_t> tokens{};  // positions: batch x seq_length of each step
  std::optional<double> epochs{};
  SchedulePace pace{};
  friend bool operator==(const RunLength&, const RunLength&) = default;
};

/// The progress of a run that is resumed.
struct Progress {
  std::int64_t steps = 0;      // 0: it begins
  std::int64_t samples = 0;    // sequences, of any length
  std::int64_t positions = 0;  // batch x seq_length of the steps
  std::int64_t updates = 0;
  std::int64_t windows = 0;        // of an epoch's with the present seq_length that are behind it
  std::int64_t planned_steps = 0;  // in all, by the session that it resumes
  std::optional<RunLength> planned{};  // of that session; none: its checkpoint does not say
};

/// The machine, as far as a plan depends on it. The caller who asks for a plan fills it in; the
/// plan never queries the machine.
struct Site {
  std::int64_t world_size = 1;
  std::int64_t ranks_per_host = 1;
  std::int64_t cores_per_host = 1;
  bool ranks_are_threads =
      false;  // ranks are threads of one process: no staging, one program for all
  DeviceKind device = DeviceKind::cpu;  // what parallel.device: auto means there
  bool cudnn = false;                   // what parallel.attention_backend: auto may take there
  bool trains = true;                   // false: only forward passes (evaluate, generate)
  Progress done{};                      // of a run that is resumed
  RunLength length{};                   // what settle_lengths found
};

}  // namespace trainctl
