// The step as blocks of time, one row per pipeline stage, for drawing a schedule.
#pragma once

#include <string>
#include <vector>

#include "plan/cost/device_prices.h"
#include "plan/plan.h"

namespace trainctl {

enum class BlockKind : std::uint8_t { forward, backward, input_gradient, weight_gradient };

/// Consecutive rows of one stage for the same micro-batch and chunk. `backward` is B and
/// W of one unit after the other.
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
  std::vector<TimeBlock> blocks;      // by stage and start, none empty
  std::vector<double> idle_fraction;  // per stage
  double length = 0;
  bool in_milliseconds = false;  // else F, B and W of one layer take one unit each
};

/// The times are those of the simulator, with F : B : W = 1 : 1 : 1 per layer and no other costs,
/// as for the plan's bubble.
Timeline make_timeline(const Plan& plan);
/// The times of a step that was played by prices.
Timeline make_timeline(const PlayedStep& step);

/// "3 F, 5 x (F B), 3 B": the kinds of a stage's compute rows, with repetitions folded. W is
/// omitted if it always follows its B directly.
std::string folded_order(const StagePlan& stage);

/// Whether some W of the stage does not follow its B directly.
bool splits_backward(const StagePlan& stage);

}  // namespace trainctl
