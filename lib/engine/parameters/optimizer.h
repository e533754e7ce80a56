// The update of a step: the norm of gradients and the verdict, the optimizer, updates of whole
// matrices, QK-Clip and the biases of experts.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/group.h"
#include "comm/nccl/device_world.h"
#include "config/schema/config.h"
#include "device/slab.h"
#include "engine/parameters/param_store.h"
#include "ops/context.h"
#include "ops/optimizer.h"
#include "plan/ownership/matrix_exchange.h"
#include "plan/plan.h"
#include "plan/rules/resolve.h"
#include "plan/tables/model.h"

namespace trainctl {

/// The random rounding of an owned slice; its bits do not depend on which rank owns an element.
RandomRounding rounding_of(const ParamSpec& spec, const Slice& owned, const Mesh& mesh,
                           std::int64_t rank);

/// Updates the parameters whose update is element-wise. The arguments of the op are built once; a
/// step only runs them.
class Optimizer {
 public:
  /// `store` has the parameters of `rank`. Arguments are copied to a device on `stream`.
  Optimizer(const OptimizerConfig& config, const ParamStore& store, const StepState* state,
            const Mesh& mesh, std::int64_t rank, Stream& stream);
  /// Updates; learning rate, decay, bias corrections and clip coefficient come from the step state.
  void step(const OpContext& context) const;
  /// Adds the parameters of this step, including those that other classes update, to the average of
  /// weights. Expert biases are left out, since they move later (move_expert_biases).
  void average(const OpContext& context) const;

 private:
  void add_averages(const OptimizerConfig& config, const ParamStore& store, const StepState* state,
                    Stream& stream);

  std::vector<Calls<Update>> updates_;  // one entry for each update rule of this rank's parameters
  std::optional<Calls<Update>> averages_;
};

// The updates that need whole matrices (StagePlan::matrices): each rank computes the direction of
// its slices, workers make whole matrices of directions orthogonal, owners apply them. The order of
// every sum depends only on a matrix's shape, so all layouts give bit-identical results.

class MatrixUpdate {
 public:
  /// Collective: forms a group of the stage's ranks, used on the compute stream. `store` has the
  /// parameters of the rank. Allocates nothing without parameters of this kind.
  MatrixUpdate(const MuonConfig& muon, const Plan& plan, const ParamStore& store,
               const StepState* state, const DeviceWorld& world, Stream& stream);
  ~MatrixUpdate();

  /// Updates; reads the same values of the step state as Optimizer::step. Collective.
  void step(const OpContext& context) const;
  std::int64_t bytes() const { return memory_.bytes().numel(); }

 private:
  struct Matrix;
  struct Round;
  struct Places;
  void add_updates(Round& round, const Places& places) const;
  void add_matrices(Round& round, const MatrixWork& work, Stream& stream) const;
  /// The buffer of values sent to workers and of their results.
  Tensor wire() const;
  void fill_stack(const Round& round, const OpContext& context) const;
  void send_results(const Round& round, const OpContext& context) const;
  void make_orthogonal(const Matrix& matrix, const Round& round, const OpContext& context) const;
  void iterate(const Tensor& x, const OpContext& context) const;

  MuonConfig muon_;
  std::vector<MuonTriple> triples_;
  Slab memory_;
  std::unique_ptr<Group> ranks_;  // null for one rank
  std::vector<Round> rounds_;
};

// Clipping of queries and keys by their scores (Kimi Team 2025, "Kimi K2", section 2.1, QK-Clip).
// After the update, where the largest score M of a head in the step exceeds the threshold,
//   eta = threshold / M;  rows that make its queries *= eta^alpha, its keys *= eta^(1 - alpha)
// with their biases. Heads that share keys use the largest M among these heads. M is taken after
// the scale and before a cap, over all micro-batches and ranks. Parameters with a rate of 0 do not
// change.

class QkClip {
 public:
  /// `everyone`: all ranks, on host memory. All arguments must outlive the QkClip. Without a
  /// threshold nothing is allocated.
  QkClip(const OptimizerConfig& optimizer, const Plan& plan, const ParamStore& store,
         const StepState* state, Group& everyone, Stream& compute);

  bool on() const { return keys_.contains("scores"); }
  /// Pass::largest_scores; empty without a threshold.
  Tensor scores() const { return on() ? keys_.at("scores") : Tensor{}; }
  /// Sets the scores to 0 at the start of a step.
  void begin(Stream& stream) const {
    if (on()) stream.zero(scores());
  }
  /// Call after the passes: copies the scores to the host. The caller waits for the stream.
  void fetch(Stream& stream) const {
    if (on()) stream.copy(on_host_.at("scores"), scores());
  }
  /// Clips, after the update and the wait. `host`: an inline stream of host memory. Collective.
  void step(const OpContext& context, Stream& host);
  /// The largest scores of the last step over all ranks, [layers of the model, heads].
  std::span<const float> largest() const { return largest_; }

 private:
  /// The factors for one head of keys and for the heads of queries that use it.
  struct Factors;
  std::vector<Update> updates(const ParamStore& store, const StepState* state) const;
  void share_scores(Stream& host);
  Factors factors_of(std::int64_t layer, std::int64_t kv_head) const;

  const OptimizerConfig& optimizer_;
  const Plan& plan_;
  Group& everyone_;
  const std::int64_t rank_;
  Slab keys_;     // "scores" [layers, heads] i32
  Slab factors_;  // "factors" [layers, heads of keys, 2] fp32, device memory
  Slab on_host_;  // copies of "scores" and "factors" on the host
  std::vector<std::vector<std::int64_t>> layers_;  // layers of each stage
  std::vector<std::int32_t> sent_, received_;      // integer keys; received_ by rank
  std::vector<float> largest_;
  std::optional<Calls<Update>> scales_;
};

// The biases that routers add to scores when they choose experts. They have no gradient.

/// At the end of a step: each bias that this rank updates rises by model.bias_rate if its expert
/// was chosen less often than the mean of its layer, and falls by it if more often (Wang et al.
/// 2024, algorithm 1). `sums` are Pass::router_sums, added up over all ranks. Counts are integers,
/// so the result is the same on every layout.
void move_expert_biases(const ModelShape& model, const Tensor& sums, const ParamStore& store);

// The norm of all gradients of the whole model after they are summed, and the verdict of the step:
// whether the optimizer updates and by which factor it multiplies gradients (ops/optimizer.h).
// Every element counts once: one of the ranks that hold it adds it to the norm. All elements that
// any optimizer reads are checked, so that all ranks skip a step if one of them must.

class GradNorm {
 public:
  /// `everyone`, and the memory of `store` and `state` on its device, must outlive this object.
  /// `limit`: of the norm; no limit if 0. Data for a device is copied on `stream`.
  GradNorm(const ParamStore& store, Group& everyone, double limit, const LossScaling& scaling,
           StepState* state, Stream& stream);
  GradNorm(const GradNorm&) = delete;
  GradNorm& operator=(const GradNorm&) = delete;

  /// Collective. Writes the verdict to the step state.
  void run(const OpContext& context);

 private:
  std::vector<SquareSum> parts(const ParamStore& store) const;

  Group& everyone_;
  Slab sums_;   // [ranks, 2] f64: square_sums of each rank
  Tensor own_;  // [2] StepState::square_sums of this rank
  Calls<SquareSum> parts_;
  StepVerdict verdict_;
};

}  // namespace trainctl
