// The machine and the progress of a resumed run, as far as a plan depends on them.
#pragma once

#include <cstdint>
#include <optional>

#include "base/kinds.h"

namespace trainctl {

/// Maps updates to positions in the schedules of learning rate and weight decay. Schedule keys
/// count steps of the first session's batch size. If a later session has another batch size, it
/// passes through the rest of the schedules in its own number of steps.
struct SchedulePace {
  std::int64_t updates = 0;  // number of updates from which this pace holds
  double position = 0;       // position in the schedules after that many updates
  double per_update = 1;     // increase of the position with each further update
  std::int64_t end = 0;      // position at the end of the run; 0 = train.steps
  /// The position after `completed` updates; exact if the pace never changed.
  double at(std::int64_t completed) const {
    return position + per_update * static_cast<double>(completed - updates);
  }
  friend bool operator==(const SchedulePace&, const SchedulePace&) = default;
};

struct RunLength {
  // The length that the config asks for; if both are unset, train.steps gives it.
  std::optional<std::int64_t> tokens{};  // batch x seq_length, summed over steps
  std::optional<double> epochs{};
  SchedulePace pace{};
  friend bool operator==(const RunLength&, const RunLength&) = default;
};

/// The progress of a run that is resumed; all 0 for a new run.
struct Progress {
  std::int64_t steps = 0;      // steps done
  std::int64_t samples = 0;    // sequences read, of any length
  std::int64_t positions = 0;  // batch x seq_length, summed over steps
  std::int64_t updates = 0;
  std::int64_t windows = 0;            // windows read so far, at the present seq_length
  std::int64_t planned_steps = 0;      // total steps that the previous session planned
  std::optional<RunLength> planned{};  // planned length, if the checkpoint has one
};

/// The machine, as far as a plan depends on it. The caller fills it in; planning never queries the
/// machine.
struct Site {
  std::int64_t world_size = 1, ranks_per_host = 1, cores_per_host = 1;
  bool ranks_are_threads = false;       // ranks are threads of one process
  DeviceKind device = DeviceKind::cpu;  // device that parallel.device: auto selects
  bool cudnn = false;                   // parallel.attention_backend: auto may select cuDNN
  bool trains = true;                   // false for forward passes only (evaluate, generate)
  Progress done{};                      // progress of a resumed run
  RunLength length{};                   // result of settle_lengths()
};

}  // namespace trainctl
