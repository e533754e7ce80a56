// The step as blocks of time, one row per pipeline stage, for drawing a schedule.
#pragma once

#include <string>
#include <vector>

#include "plan/cost/device_prices.h"
#include "plan/plan.h"

namespace trainctl {

enum class BlockKind : std::uint8_t { forward, backward, input_gradient, weight_gradient };

/// Consecutive rows of a stage for the same micro-batch and chunk. Kind `backward` is B followed by
/// W of the same units.
struct TimeBlock {
  int stage = 0;
  BlockKind kind = BlockKind::forward;
  int microbatch = 0;
  int chunk = 0;
  double start = 0;
  double finish = 0;
  double length() const { return finish - start; }
};

struct Timeline {
  std::vector<TimeBlock> blocks;      // sorted by stage and start; none is empty
  std::vector<double> idle_fraction;  // per stage
  double length = 0;
  bool in_milliseconds = false;  // else F, B and W of one layer take one unit each
};

/// The times are those of the simulator, with F : B : W = 1 : 1 : 1 per layer and no other costs,
/// as for the plan's bubble.
Timeline make_timeline(const Plan& plan);
/// The times of a step that was played by prices.
Timeline make_timeline(const PlayedStep& step);

/// The order of a stage's compute rows, with repetitions folded: "3 F, 5 x (F B), 3 B". W is
/// omitted if it always follows its B directly.
std::string folded_order(const StagePlan& stage);

/// Whether some W (weight gradient) of the stage does not directly follow its B.
bool splits_backward(const StagePlan& stage);

}  // namespace trainctl
