// The engine of one rank: executes a Plan over a world. It owns parameters, activations, streams
// and groups, takes micro-batches and returns reports, and knows no files, YAML or command lines.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/host/watch.h"
#include "comm/world.h"
#include "device/stream.h"
#include "engine/engine_input.h"
#include "engine/executor.h"
#include "engine/forward.h"
#include "engine/groups/layer_groups.h"
#include "engine/memory/buffers.h"
#include "engine/parameters/optimizer.h"
#include "engine/parameters/param_store.h"
#include "engine/report.h"
#include "engine/trace.h"
#include "ops/kernels.h"

namespace trainctl {

class StepGraph;

class Engine {
 public:
  /// Allocates everything; `world` and what `input` refers to must outlive the engine. Sets the
  /// number of threads of the calling thread. Throws Error{unavailable} if a kernel that the plan
  /// needs is missing or memory does not suffice.
  Engine(const EngineInput& input, World& world);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Initialises every parameter from the seed. With parallel.parameter_broadcast, the values of
  /// the first replica are used; the call is then collective.
  void initialise();
  /// Call after masters in parameters() were changed from outside.
  void masters_changed();
  /// Continues a run whose masters and optimizer values are in parameters(), as far as this rank
  /// owns them.
  void resume(const TrainState& state);
  TrainState train_state() const;  // step state after the last step
  /// One optimizer step. `batches` holds this rank's micro-batches, as many as the plan of the step
  /// has (Plan::after); with full_batch, the micro-batches of all replicas (Plan::fed_sequences).
  /// Collective; allocates nothing after the second step with the same number of micro-batches. If
  /// a gradient is not finite, nothing is updated; the run continues if a lower loss scale may help
  /// or the policy is to skip. Otherwise a loss or gradient that is not finite throws
  /// Error{diverged} with step, rank and tensor.
  StepReport train_step(const std::vector<Batch>& batches);
  /// See Evaluation::run. Ends early once `ends` (set on all ranks) is true on one. Collective.
  std::optional<double> evaluate(const Dataset& data, const BatchRule& rule,
                                 std::int64_t max_windows, const std::function<bool()>& ends = {});
  /// Compares the copies of parameters on all ranks (ReplicaCheck). Collective.
  void check_replicas();

  /// After a step with a parallel optimizer, gathers the weights that stay on each rank as the next
  /// step would; a second call does nothing. Collective.
  void complete_weights();
  /// With a parallel optimizer, weights are complete only after complete_weights().
  ParamStore& parameters() { return store_; }
  /// Access to the whole parameters of all ranks over messages. `work`: host memory to use.
  WholeParams whole_parameters(std::span<std::byte> work = {});
  const OpContext& ops() const { return ops_; }
  const StepState& step_state() const { return state_.host(); }  // step state after the last step
  const DeviceWorld& devices() const { return devices_; }
  const Buffers& buffers() const { return buffers_; }
  /// The largest score of each head in the last step, by which QkClip clipped its queries and keys:
  /// [layers, heads], empty without optimizer.qk_clip_threshold.
  std::span<const float> largest_scores() const { return qk_clip_.largest(); }
  /// The memory that this rank has allocated, without prefetched batches, checkpoint and runtime.
  MemoryEstimate memory() const;
  std::int64_t completed_steps() const { return completed_; }
  /// The plan of the last step, or of the next step if none has run: the run's plan or one of
  /// Plan::smaller.
  const Plan& plan() const { return *now_; }

 private:
  using Pair = std::array<double, 2>;
  using Counts = std::array<double, 4>;  // loss weights, real positions, labels, FLOPs
  using RowHook = std::function<void(const Action& row, int unit, int view)>;
  /// From the next step on, uses the rows and places of `plan`: the run's or one of Plan::smaller.
  void use(const Plan& plan);
  ExecutorInput executor_input();
  std::unique_ptr<Stage> make_stage();
  const StagePlan& rows() const { return now_->stage_of(world_.rank()); }
  int stage_number() const {
    return static_cast<int>(plan_.mesh.coordinate(world_.rank(), Axis::pp));
  }
  Pass make_pass(int view, int chunk) const;
  void settle() const;  // waits for the device, at most twice the deadline
  void broadcast_parameters();
  RowHook forward_hook();  // calls Hooks::after_forward; empty if that is not set
  RowHook backward_hook();
  /// A hook of the input, called after the device has done its work; empty without the hook. Keeps
  /// a reference to `hook`.
  template <class... Arguments>
  std::function<void(Arguments...)> settled(const std::function<void(Arguments...)>& hook) const;
  /// Every rank's pair, in rank order; valid until the next call. Collective.
  const std::vector<Pair>& share(Pair mine);
  void begin_step(const std::vector<Batch>& batches);
  void enqueue_step(const std::vector<Batch>& batches);
  void run_step(const std::vector<Batch>& batches);
  void count_batches(const std::vector<Batch>& batches);  // Collective
  void optimizer_step();
  StepReport finish_step(double seconds);
  void tell_timers() const;
  std::optional<RouterReport> share_router();  // report over all ranks; collective
  std::optional<double> share_logit();         // this step's sums over all ranks
  bool scale_explains_overflow() const;
  [[noreturn]] void throw_bad_step() const;
  void check_bad_steps() const;  // throws unless one more may be skipped

  EngineInput input_;
  const Plan& plan_;
  const Plan* now_;        // see plan(); null before the first use()
  const StagePlan& rows_;  // rows of this rank's stage for the full batch
  World& world_;
  DeviceWorld devices_;
  Stream compute_;
  Stream host_;  // exchanges scalars between ranks
  Buffers buffers_;
  OpContext ops_;
  ParamStore store_;
  SharedState state_;
  Optimizer optimizer_;
  MatrixUpdate matrices_;
  std::unique_ptr<Group> everyone_;
  QkClip qk_clip_;
  std::unique_ptr<Group> tp_;       // tensor-parallel group of the layers, on compute_
  std::unique_ptr<Stream> beside_;  // collectives during products; null without overlap
  ContextGroups context_;           // this step's sums over all ranks
  ExpertRanks experts_;             // this step's sums over all ranks
  // Pass::router_sums (empty without experts) and Pass::largest_logit (empty unless requested),
  // each with the copy that the host reads after a step.
  Slab router_sums_, router_on_host_;
  Slab logit_, logit_on_host_;
  std::vector<float> loads_;  // RouterReport::loads
  GradSync grad_sync_;
  ParamSync param_sync_;
  std::unique_ptr<ReplicaCheck> replicas_;  // created by the first check
  Pipeline pipeline_;
  Evaluation evaluation_;
  GradNorm grad_norm_;
  std::unique_ptr<Trace> own_trace_;  // the trace for hooks.timers, if the input has none
  Trace* trace_;                      // own_trace_ or the trace of the input; may be null
  Executor executor_;
  std::unique_ptr<StepGraph> graph_;  // graph of the steps of now_; null if they run row by row
  std::vector<Pair> shared_;          // the pair of each rank
  std::vector<Counts> counted_;       // this step's sums over all ranks
  bool owns_batch_ = false;           // among ranks with the same data, this one counts it
  std::int64_t completed_ = 0, samples_ = 0, positions_ = 0, tokens_ = 0, labels_ = 0;
  double weight_sum_ = 0, flops_ = 0, scale_ = 1;  // this step's sums over all ranks; loss scale
  std::int64_t tokens_now_ = 0, labels_now_ = 0;   // this step's sums over all ranks
  std::int64_t updates_ = 0, skipped_in_row_ = 0;  // counts before the current step
};

/// The names of the kernels that a plan needs and `kernels` lacks.
std::vector<std::string> missing_for(const Plan& plan, const Kernels& kernels);

}  // namespace trainctl
