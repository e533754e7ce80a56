// The rows of a plan, executed one after another, and the messages between pipeline stages.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/at.h"
#include "comm/host/watch.h"
#include "comm/nccl/device_world.h"
#include "data/batch.h"
#include "engine/memory/buffers.h"
#include "engine/parameters/sync.h"
#include "engine/trace.h"
#include "nn/stage.h"
#include "plan/plan.h"

namespace trainctl {

/// The messages between pipeline stages: executes rows of the schedule as sends and receives over
/// the pipeline group. A send is posted and awaited only before its buffer is overwritten; a
/// receive is awaited at the end of its batch of rows or by a wait row.
class Pipeline {
 public:
  /// Collective over each pipeline group. All arguments must outlive this object.
  Pipeline(const Plan& plan, const Buffers& buffers, const DeviceWorld& world, const OpContext& ops,
           double deadline_seconds);
  ~Pipeline();
  /// Call between two steps: from now on places in the buffers are those of `plan`. Waits until all
  /// sends have ended.
  void lay_out(const Plan& plan);

  /// Sets the micro-batches that the next rows refer to.
  void use(std::span<const Batch> batches) { batches_ = batches; }
  /// The number of message rows at the start of `rows` that are posted together.
  std::size_t posted_together(std::span<const Action> rows) const;
  /// Posts message rows and then waits for their receives, unless the plan has wait rows for them.
  /// Throws Error{peer} naming the message that did not arrive.
  void exchange(std::span<const Action> rows);
  /// Waits for the receive that the row posted; does nothing if it was already awaited.
  void await_received(const Action& row);
  /// Waits until the output of the F row, which is sent to another stage, may be overwritten.
  void await_output(const Action& row);
  /// Waits until all sent outputs have arrived.
  void await_outputs();
  /// Waits until the gradient of the B row, which is sent to another stage, may be overwritten.
  void await_gradient(const Action& row);
  /// Runs F or B of a chunk without units: sends the received tensor unchanged.
  void pass_on(const Action& row);
  /// Sends `values` (host memory) from the stage with the model's last chunk to every stage if the
  /// plan broadcasts results, else to rank 0. Returns whether this rank now has the values.
  /// Collective over each pipeline group.
  bool share_result(const Tensor& values);
  int world_rank() const { return world_rank_; }

 private:
  struct Line;
  struct Chunk;
  Chunk& chunk_of(const Action& row);
  /// The entry of `by_view` for the row's view, or its only entry.
  template <class T>
  T& own(std::vector<T>& by_view, const Action& row) const {
    return by_view.size() == 1 ? by_view.front() : at(by_view, at(*view_of_, row.microbatch));
  }
  /// The part of a tensor in `by_view` that is as long as the row's micro-batch.
  Tensor part(std::vector<Tensor>& by_view, const Action& row) const;
  Line& received_by(const Action& row);
  void send(const Action& row);
  void receive(const Action& row);
  void open_lines();
  std::string name_of(const char* operation) const;
  void finish(const Event& event, const char* operation) const;         // waits on the stream
  void await_message(const Event& event, const char* operation) const;  // waits on the host

  const OpContext& ops_;
  const MessageRules rules_;
  const ChunkPlaces places_;
  const std::int64_t seq_length_;
  std::span<const Batch> batches_;
  const Buffers& buffers_;
  const std::vector<int>* view_of_;  // the view of each micro-batch
  double deadline_seconds_;
  const int world_rank_;
  const bool broadcasts_;  // results go to all stages
  const bool reports_;     // rank 0 is in this rank's group
  std::unique_ptr<Group> group_;
  std::vector<Chunk> chunks_;
};

// Runs the refined rows of a plan in a loop with a switch: training steps, and forward passes for
// evaluation and generation. The meaning of the rows is decided in plan/.

/// The objects that the rows of every plan act on.
struct ExecutorInput {
  Buffers& buffers;
  Pipeline& pipeline;
  const OpContext& ops;  // context of the compute stream
  double deadline_seconds = 0;
  Share share;                                         // the part of each batch for a pass
  std::function<std::unique_ptr<Stage>()> make_stage;  // makes the layers over `buffers`
  std::function<Pass(int view, int chunk)> make_pass;  // makes the arguments of the layers
  ParamSync* param_sync = nullptr;                     // null if no row gathers
  GradSync* grad_sync = nullptr;                       // null if no row sums gradients
  // Calls by which an embedding program follows the rows of a step; each may be empty. The first
  // when the output of `unit` is complete (for a chunk's first row, also its input), the second
  // when its input gradient is, except that of unit 0; rows run unit by unit where one of these is
  // given.
  std::function<void(const Action&row, int unit, int view)> after_forward{}, after_backward{};
  std::function<void(int bucket)> before_reduce{};
  std::function<void()> optimizer_step{};
  // A barrier of all ranks, called before the first row of a step, after the passes and before the
  // optimizer; may be empty.
  std::function<void()> meet{};
  Trace* trace = nullptr;        // records the rows of steps; may be null
  Activity* activity = nullptr;  // is told of each row of a step; may be null
};

class HostCopies;

class Executor {
 public:
  /// Objects that `input` refers to must outlive this object.
  explicit Executor(ExecutorInput input);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// From now on executes the rows of stage number `stage` of `plan`, with its layout of buffers
  /// and messages. `feed_places`: for each micro-batch, the place of its feeds that fill_feeds
  /// fills before a step; if empty, each batch is copied to the device when its fetch row runs.
  void use(const Plan& plan, int stage, std::vector<int> feed_places = {});
  /// Copies batches to feed_places. Call before each step, when no copy from there is running.
  void fill_feeds(std::span<const Batch> batches);
  /// Runs one step over this rank's micro-batches: micro-batch m lies in view
  /// StagePlan::activation_slots.view_of[m].
  void step(std::span<const Batch> batches);
  /// Runs the forward of a batch in view 0 without dropout and gradients
  /// (StagePlan::forward_actions). Weights that stay must be complete. Sends may outlast the call:
  /// see Pipeline::await_outputs.
  void forward(const Batch& batch);
  std::int64_t feed_bytes() const;  // page-locked host memory of the feeds

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
  const StagePlan* rows_ = nullptr;  // the rows set by use()
  std::vector<int> feed_places_;
  std::size_t passes_end_ = 0;  // end_of_passes() of the rows of a step
  std::unique_ptr<HostCopies> host_copies_;
  std::unique_ptr<Stage> stage_;
  std::vector<Pass> passes_;  // [view][chunk]
  std::vector<Feed> feeds_;   // copy batches to the tensors of passes_
  // The arguments of the step or pass that runs now.
  std::span<const Batch> batches_;
  bool training_ = true;  // true in step(), false in forward()
  Trace* trace_ = nullptr;
  Activity* activity_ = nullptr;
};

}  // namespace trainctl
