// Runs the refined rows of a plan in a loop with a switch: training steps, and forward passes for
// evaluation and generation. The meaning of the rows is decided in plan/.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/host/activity.h"
#include "data/batch.h"
#include "engine/memory/buffers.h"
#include "engine/memory/feed.h"
#include "engine/memory/host_copies.h"
#include "engine/parameters/grad_sync.h"
#include "engine/parameters/param_sync.h"
#include "engine/pipeline.h"
#include "engine/trace.h"
#include "nn/stage.h"
#include "plan/plan.h"

namespace trainctl {

/// What an embedding program sees of the rows of a step; each may be empty.
struct RowHooks {
  // What `unit` gives to the next is there; of a chunk's first row also what the unit before it
  // gave. Where this is empty, rows are not run unit by unit.
  std::function<void(const Action& row, int unit, int view)> after_forward;
  // What `unit` gives to the one below it is there; not for unit 0. As above.
  std::function<void(const Action& row, int unit, int view)> after_backward;
  std::function<void(int bucket)> before_reduce;
};

/// What the rows of every plan act on.
struct ExecutorInput {
  Buffers& buffers;
  Pipeline& pipeline;
  const OpContext& ops;  // of the compute stream
  double deadline_seconds = 0;
  Share share;                                         // of each batch, that a pass works on
  std::function<std::unique_ptr<Stage>()> make_stage;  // with the rows of `buffers`
  std::function<Pass(int view, int chunk)> make_pass;  // the same
  ParamSync* param_sync = nullptr;                     // null: no row gathers
  GradSync* grad_sync = nullptr;                       // null: no row sums
  RowHooks hooks{};
  std::function<void()> optimizer_step{};
  // All ranks meet: before the first row of a step, the end of passes and the optimizer; may be
  // empty.
  std::function<void()> meet{};
  Trace* trace = nullptr;        // records the rows of steps; may be null
  Activity* activity = nullptr;  // is told of the rows of steps; may be null
};

class Executor {
 public:
  /// What `input` refers to must outlive this object.
  explicit Executor(ExecutorInput input);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// From now on the rows are those of stage number `stage` of `plan`, and buffers and messages lie
  /// as it says. `feed_places`: by micro-batch the place of its feeds that has it before the first
  /// row of a step; empty: each batch goes to the device as its row comes.
  void use(const Plan& plan, int stage, std::vector<int> feed_places = {});
  /// With feed_places, before each step: no copy from the feeds is under way.
  void fill_feeds(std::span<const Batch> batches);
  /// One step over this rank's micro-batches: micro-batch m lies in view
  /// StagePlan::activation_slots.view_of[m].
  void step(std::span<const Batch> batches);
  /// F of a batch in view 0, without dropout and gradients (StagePlan::forward_actions). Weights
  /// that stay must be there. Sends may still be under way: Pipeline::await_outputs.
  void forward(const Batch& batch);
  std::int64_t feed_bytes() const;  // page-locked

 private:
  const StagePlan& rows() const { return *rows_; }
  int view_of(const Action& row) const;
  std::int64_t pass_number(int view, int chunk) const;
  const Pass& pass_of(const Action& row) const;
  void set_training(bool training);
  void run(std::span<const Action> actions, std::span<const Batch> batches);
  void run_row(const Action& row);
  void fetch(const Action& row);
  void run_forward(const Action& row);
  void backward_input(const Action& row);
  void fit(const Action& row);
  void meet_before(std::size_t row, const Action& action);
  void note_wait();

  ExecutorInput in_;
  const StagePlan* rows_ = nullptr;  // see use()
  std::vector<int> feed_places_;
  std::size_t passes_end_ = 0;  // end_of_passes of the rows of a step
  std::unique_ptr<HostCopies> host_copies_;
  std::unique_ptr<Stage> stage_;
  std::vector<Pass> passes_;  // [view][chunk]
  std::vector<Feed> feeds_;   // of their tensors
  // Of what runs now.
  std::span<const Batch> batches_;
  bool training_ = true;  // a step; else F alone
  Trace* trace_ = nullptr;
  Activity* activity_ = nullptr;
};

}  // namespace trainctl
