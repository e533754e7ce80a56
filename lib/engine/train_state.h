// What a run needs besides parameters and optimizer values to go on after a step: small values that
// are the same on every rank.
#pragma once

#include <cstdint>

namespace trainctl {

struct TrainState {
  std::int64_t step = 0;     // completed
  std::int64_t samples = 0;  // seen: the index of the next one
  // Seen: real positions, all positions, labels with a weight above 0 (StepReport).
  std::int64_t tokens = 0, positions = 0, labels = 0;
  std::int64_t updates = 0;  // steps that changed the parameters
  double loss_scale = 1;     // of the next backward
  std::int64_t good_steps = 0;
  std::int64_t hysteresis = 1;
  std::int64_t skipped_in_row = 0;
  friend bool operator==(const TrainState&, const TrainState&) = default;
};

}  // namespace trainctl
