// Runs the plan's refined rows of one step: a loop and a switch. What a row means is decided in
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
  // What `unit` gives to the next is there; of a chunk's first row also what the unit before it
  // gave. May be empty: then rows are not run unit by unit.
  std::function<void(const Action& row, int unit, int slot)> after_forward;
  // What `unit` gives to the one below it is there; not for unit 0. May be empty, too.
  std::function<void(const Action& row, int unit, int slot)> after_backward;
  std::function<void()> step;
  std::function<void(int bucket)> before_reduce;  // may be empty
  Trace* trace = nullptr;                         // records the rows; may be null
  Activity* activity = nullptr;                   // is told of the rows; may be null
};

/// What a row's number means to whoever asks `activity` from now on. `rows` must outlive that.
void name_rows(Activity& activity, std::span<const Action> rows);

/// `slots`: micro-batch m lives in slot m % slots.
void execute(const std::vector<Action>& actions, int slots, const ExecutorParts& parts);

}  // namespace trainctl
