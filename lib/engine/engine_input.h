// The inputs of an engine, without its world, and the functions that an embedding program may run
// inside a step.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "config/schema/config.h"
#include "engine/trace.h"
#include "plan/plan.h"
#include "plan/rules/resolve.h"

namespace trainctl {

class ParamStore;
struct Tensor;

/// Functions that a program embedding the engine may run inside a step: C++ counterparts of
/// functions in Megatron-Core's ModelParallelConfig, and access to activations and their gradients.
/// Each is called on every rank on the thread that runs the step; those named after_... not in the
/// same order on all ranks. Section hooks of the YAML file offers built-in alternatives.
struct Hooks {
  /// After all gradients are summed and before the norm is computed (finalize_model_grads_func). It
  /// may change gradients, equally on all replicas. They include the factor of the loss scale. With
  /// the parallel optimizer a rank has the sums of its own slices (ParamStore::gradient).
  std::function<void(ParamStore&)> finalize_model_grads{};
  /// The output of the forward of a unit of this rank's stage, in every training step: the residual
  /// stream after the embedding (unit 0) and after each block, and finally the output of the final
  /// norm. Before a stage's first unit, the received output of the unit before it. This rank's
  /// tokens, [tokens, hidden]; valid until the hook returns. The hook may change it, and the next
  /// unit reads the changed values. (The head has already read the output of the final norm.)
  std::function<void(int unit, int microbatch, const Tensor& stream)> after_forward{};
  /// The logits of a layer's router, [T, experts] fp32, before experts are chosen, in every
  /// training step and each time they are computed (again where a forward is repeated). `tokens`,
  /// [T] i64: which ones of the data they are (sample * seq_length + place), this rank's. The hook
  /// may change the logits, alike on all ranks that have a token; both are device memory and valid
  /// until it returns.
  std::function<void(std::int64_t layer, const Tensor& tokens, const Tensor& logits)>
      after_router{};
  /// Called with the gradient of the logits of a layer's router, [S, experts] fp32, for the tokens
  /// of this rank's part of the residual stream. It includes the losses of the router and the
  /// factor of the loss scale. To be read only, until the hook returns.
  std::function<void(std::int64_t layer, const Tensor& tokens, const Tensor& gradient)>
      after_router_backward{};
  /// Called after each dropout in the forward of a training step. Site 0 is the embedding's output;
  /// for layer i, site 1 + 3 i is the probabilities of attention, 2 + 3 i the output of attention
  /// and 3 + 3 i that of the MLP, both before they are added to the residual stream. `values` are
  /// this rank's, afterwards, and empty for attention's probabilities, which are in no memory. To
  /// be read only, until the hook returns.
  std::function<void(std::int64_t site, float probability, const Tensor& values)> after_dropout{};
  /// The output of the backward of a unit of this rank's stage for the unit below it, in every
  /// training step: the gradient of the residual stream that the unit read. Not for the embedding
  /// (unit 0). It includes the factor of the loss scale. The hook may change it; the unit below, on
  /// whichever stage, reads the changed values.
  std::function<void(int unit, int microbatch, const Tensor& gradient)> after_backward{};
  /// Before the sum of a gradient bucket starts (grad_sync_func).
  std::function<void(int bucket)> grad_sync{};
  /// After each step the seconds that this rank spent in each phase, under the names of
  /// engine/trace.h and in their order (timers).
  std::function<void(std::string_view phase, double seconds)> timers{};
};

struct EngineInput {
  const Plan& plan;
  const TrainConfig& train;
  const OptimizerConfig& optimizer;
  const LrScheduleConfig& lr_schedule;
  LossScaling loss_scaling{};
  double deadline_seconds = 300;
  bool separate_documents = false;  // attention stays within a document
  // Sum the loss weights and real positions over the ranks; else every token is real and counts 1.
  bool count_loss_weights = false;
  // Asked on each rank after a step; the step's report has the greatest answer of all ranks.
  std::function<int()> request{};
  Hooks hooks{};
  Trace* trace = nullptr;            // records the rows of each training step; may be null
  bool max_attention_logit = false;  // StepReport::max_attention_logit
  bool meet = false;                 // all ranks, before each phase (log.barrier_with_timers)
  // Advice for a loss or a gradient that is not finite; "" if nothing is known to help.
  std::string_view bad_step_advice{};
};

}  // namespace trainctl
