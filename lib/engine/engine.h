// A run on one rank: executes a Plan over a world. Owns parameters, activations, streams and
// groups; takes micro-batches and gives reports. Knows nothing of files, YAML and command lines.
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
  TrainState train_state() const;  // after the last step
  /// One optimizer step. `batches` are this rank's micro-batches, whose number is that of the
  /// step's plan (Plan::after), or with full_batch those of all replicas (Plan::fed_sequences).
  /// Collective; allocates nothing after the second step with the same number of micro-batches. If
  /// a gradient is not finite, nothing is updated; the run continues if a lower loss scale may help
  /// or the policy is to skip, else throws Error{diverged} with step, rank and tensor, as for a
  /// loss.
  StepReport train_step(const std::vector<Batch>& batches);
  /// See Evaluation::run. Ends early once `ends` (given on all ranks) is true on one. Collective.
  std::optional<double> evaluate(const Dataset& data, const BatchRule& rule,
                                 std::int64_t max_windows, const std::function<bool()>& ends = {});
  /// See ReplicaCheck. Collective.
  void check_replicas();

  /// After a step with a parallel optimizer, gathers the weights that stay on each rank as the next
  /// step would; a second call does nothing. Collective.
  void complete_weights();
  /// With a parallel optimizer, weights are complete only after complete_weights().
  ParamStore& parameters() { return store_; }
  /// See whole_params.h. Of all ranks, over messages.
  WholeParams whole_parameters(std::span<std::byte> work = {});
  const OpContext& ops() const { return ops_; }
  const StepState& step_state() const { return state_.host(); }  // after the last step
  const DeviceWorld& devices() const { return devices_; }
  const Buffers& buffers() const { return buffers_; }
  /// [layers, heads] with optimizer.qk_clip_threshold, else empty: the largest score of each head
  /// in the last step, by which its queries and keys were clipped (QkClip).
  std::span<const float> largest_scores() const { return qk_clip_.largest(); }
  /// The memory that this rank has allocated, without prefetched batches, checkpoint and runtime.
  MemoryEstimate memory() const;
  std::int64_t completed_steps() const { return completed_; }
  /// The plan of the last step, or of the next one before there was one: the run's plan or one of
  /// Plan::smaller.
  const Plan& plan() const { return *now_; }

 private:
  using Pair = std::array<double, 2>;
  using Counts = std::array<double, 4>;  // loss weights, real positions, labels, FLOPs
  using RowHook = std::function<void(const Action& row, int unit, int view)>;
  /// Takes places and rows of `plan`, the run's or one of Plan::smaller, from the next step on.
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
  RowHook forward_hook();  // for the hooks of those names; empty without
  RowHook backward_hook();
  using RouterHook = std::function<void(std::int64_t, const Tensor&, const Tensor&)>;
  RouterHook router_hook() const;
  RouterHook router_backward_hook() const;
  std::function<void(std::int64_t, float, const Tensor&)> dropout_hook() const;
  /// Every rank's pair, in rank order; valid until the next call. Collective.
  const std::vector<Pair>& share(Pair mine);
  void begin_step(const std::vector<Batch>& batches);
  void enqueue_step(const std::vector<Batch>& batches);
  void run_step(const std::vector<Batch>& batches);
  void count_batches(const std::vector<Batch>& batches);  // Collective
  void optimizer_step();
  StepReport finish_step(double seconds);
  void tell_timers() const;
  std::optional<RouterReport> share_router();  // of all ranks. Collective
  std::optional<double> share_logit();         // the same
  bool scale_explains_overflow() const;
  [[noreturn]] void throw_bad_step() const;
  void check_bad_steps() const;  // throws unless one more may be skipped

  EngineInput input_;
  const Plan& plan_;
  const Plan* now_;        // see plan(); null before the first use()
  const StagePlan& rows_;  // of this rank's stage, with the full batch
  World& world_;
  DeviceWorld devices_;
  Stream compute_;
  Stream host_;  // for values that ranks exchange meanwhile
  Buffers buffers_;
  OpContext ops_;
  ParamStore store_;
  SharedState state_;
  Optimizer optimizer_;
  MatrixUpdate matrices_;
  std::unique_ptr<Group> everyone_;
  QkClip qk_clip_;
  std::unique_ptr<Group> tp_;       // of the layers, on the compute stream
  std::unique_ptr<Stream> beside_;  // or on this one, during products; may be null
  ContextGroups context_;           // the same
  ExpertRanks experts_;             // the same
  // Pass::router_sums, empty without experts, and Pass::largest_logit, empty if nobody asks; where
  // the host reads them after a step.
  Slab router_sums_, router_on_host_;
  Slab logit_, logit_on_host_;
  std::vector<float> loads_;  // RouterReport::loads
  GradSync grad_sync_;
  ParamSync param_sync_;
  std::unique_ptr<ReplicaCheck> replicas_;  // created by the first check
  Pipeline pipeline_;
  Evaluation evaluation_;
  GradNorm grad_norm_;
  std::unique_ptr<Trace> own_trace_;  // for hooks.timers, where none was given
  Trace* trace_;                      // that one, or the given one; may be null
  Executor executor_;
  std::unique_ptr<StepGraph> graph_;  // of now_; null if steps are enqueued row by row
  std::vector<Pair> shared_;          // by rank
  std::vector<Counts> counted_;       // the same
  bool owns_batch_ = false;           // of the ranks with the same data, the one that counts it
  std::int64_t completed_ = 0, samples_ = 0, positions_ = 0, tokens_ = 0, labels_ = 0;
  double weight_sum_ = 0, flops_ = 0, scale_ = 1;  // of the running step, all ranks; of its loss
  std::int64_t tokens_now_ = 0, labels_now_ = 0;   // the same
  std::int64_t updates_ = 0, skipped_in_row_ = 0;  // before it
};

/// The names of the kernels that a plan needs and `kernels` lacks.
std::vector<std::string> missing_for(const Plan& plan, const Kernels& kernels);

}  // namespace trainctl
