// Runs the refined rows of a step in a loop with a switch. The meaning of the rows is decided in
// plan/.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "comm/host/activity.h"
#include "engine/parameters/grad_sync.h"
#include "engine/parameters/param_sync.h"
#include "engine/pipeline.h"
#include "engine/trace.h"
#include "nn/stage.h"
#include "plan/schedule/schedule.h"

namespace trainctl {

/// What the rows act on. `passes` has the pass of each slot; `fetch(microbatch, slot)` fills its
/// batch tensors; `step()` is the optimizer.
struct ExecutorParts {
  Stage* stage = nullptr;
  GradSync* grad_sync = nullptr;
  ParamSync* param_sync = nullptr;
  Pipeline* pipeline = nullptr;
  Stream* compute = nullptr;
  const OpContext* ops = nullptr;
  double deadline_seconds = 0;
  std::span<const Pass> passes;
  std::span<const UnitRange> units;  // of each chunk
  std::function<void(int microbatch, int slot)> fetch;
  // Called when the output of `unit` is complete; for the first row of a chunk, also for the unit
  // before it. May be empty: then rows are not split by unit.
  std::function<void(const Action& row, int unit, int slot)> after_forward;
  // Called when the gradient for the unit below `unit` is complete; not for unit 0. May be empty.
  std::function<void(const Action& row, int unit, int slot)> after_backward;
  std::function<void()> step;
  std::function<void(int bucket)> before_reduce;  // may be empty
  Trace* trace = nullptr;                         // records the rows; may be null
  Activity* activity = nullptr;                   // records the current row; may be null
};

/// Tells `activity` what the numbers of rows mean from now on. `rows` must outlive that use.
void name_rows(Activity& activity, std::span<const Action> rows);

/// `slots`: micro-batch m uses slot m % slots.
void execute(const std::vector<Action>& actions, int slots, const ExecutorParts& parts);

}  // namespace trainctl
