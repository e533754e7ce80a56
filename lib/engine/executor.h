// Runs the refined rows of a step in a loop with a switch. The meaning of the rows is decided in
// plan/.
#pragma once

#include <functional>
#include <span>

#include "comm/host/activity.h"
#include "data/batch.h"
#include "engine/memory/feed.h"
#include "engine/memory/host_copies.h"
#include "engine/parameters/grad_sync.h"
#include "engine/parameters/param_sync.h"
#include "engine/pipeline.h"
#include "engine/trace.h"
#include "nn/stage.h"
#include "plan/plan.h"

namespace trainctl {

/// What an embedding program sees of the rows; each may be empty.
struct RowHooks {
  // What `unit` gives to the next is there; of a chunk's first row also what the unit before it
  // gave. Where this is empty, rows are not run unit by unit.
  std::function<void(const Action& row, int unit, int view)> after_forward;
  // What `unit` gives to the one below it is there; not for unit 0. As above.
  std::function<void(const Action& row, int unit, int view)> after_backward;
  std::function<void(int bucket)> before_reduce;
};

/// What the rows act on.
struct ExecutorParts {
  const StagePlan* plan = nullptr;  // of this rank's stage
  Stage* stage = nullptr;
  GradSync* grad_sync = nullptr;
  ParamSync* param_sync = nullptr;
  Pipeline* pipeline = nullptr;
  HostCopies* host_copies = nullptr;
  const OpContext* ops = nullptr;  // of the compute stream
  double deadline_seconds = 0;
  std::span<const Pass> passes;  // [view][chunk]
  std::span<Feed> feeds;         // of their tensors
  Share share;                   // of each batch, that goes into the tensors of its pass
  // By micro-batch: the place of its feeds that has it before the first row. Empty: each batch goes
  // to the device as its row comes.
  std::span<const int> feed_places;
  RowHooks hooks;
  // Gives the tensors of a view the length of the batch's rows.
  std::function<void(int view, const Batch&)> fit;
  std::function<void()> step;  // the optimizer
  // All ranks meet: before the first row, the end of passes and the optimizer; may be empty.
  std::function<void()> meet;
  std::size_t passes_end = 0;    // end_of_passes of the rows
  Trace* trace = nullptr;        // records the rows; may be null
  Activity* activity = nullptr;  // is told of the rows; may be null
};

/// Tells `activity` what the numbers of rows mean from now on. `rows` must outlive that use.
void name_rows(Activity& activity, std::span<const Action> rows);

/// With feed_places, before each step: no copy from the feeds is under way.
void fill_feeds(std::span<const Batch> batches, const ExecutorParts& parts);

/// One step over `batches`, this rank's micro-batches: micro-batch m lies in view
/// StagePlan::activation_slots.view_of[m].
void execute(std::span<const Batch> batches, const ExecutorParts& parts);

}  // namespace trainctl
