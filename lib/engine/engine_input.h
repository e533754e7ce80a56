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
  /// Called after all gradients are summed and before the norm is computed
  /// (finalize_model_grads_func). The hook may change gradients, equally on all replicas. They
  /// include the factor of the loss scale. With the parallel optimizer a rank has the sums of its
  /// own slices (ParamStore::gradient).
  std::function<void(ParamStore&)> finalize_model_grads{};
  /// Called with the output of each unit of this rank's stage in the forward of every training
  /// step: the residual stream after the embedding (unit 0) and after each block, and finally the
  /// output of the final norm; before a stage's first unit, also with the output received from the
  /// stage before. `stream`: this rank's tokens, [tokens, hidden]; valid until the hook returns.
  /// The hook may change it, and the next unit reads the changed values. (The head has already read
  /// its input.)
  std::function<void(int unit, int microbatch, const Tensor& stream)> after_forward{};
  /// Called with the logits of a layer's router, [T, experts] fp32, before experts are chosen, in
  /// every training step each time they are computed (again where a forward is repeated). `tokens`,
  /// [T] i64: the indices of this rank's tokens in the data (sample * seq_length + position). The
  /// hook may change the logits, alike on all ranks that have a token; both tensors are device
  /// memory and valid until it returns.
  std::function<void(std::int64_t layer, const Tensor& tokens, const Tensor& logits)>
      after_router{};
  /// Called with the gradient of the logits of a layer's router, [S, experts] fp32, for the tokens
  /// of this rank's part of the residual stream. It includes the losses of the router and the
  /// factor of the loss scale. Read-only; valid until the hook returns.
  std::function<void(std::int64_t layer, const Tensor& tokens, const Tensor& gradient)>
      after_router_backward{};
  /// Called after each dropout in the forward of a training step. Site 0 is the embedding's output;
  /// for layer i, site 1 + 3 i is the probabilities of attention, 2 + 3 i the output of attention
  /// and 3 + 3 i the output of the MLP, both before they are added to the residual stream.
  /// `values`: this rank's values after the dropout; empty for site 1 + 3 i, whose values are never
  /// stored. Read-only; valid until the hook returns.
  std::function<void(std::int64_t site, float probability, const Tensor& values)> after_dropout{};
  /// Called with the gradient of the residual stream that a unit of this rank's stage read, in
  /// every training step; not for the embedding (unit 0). The gradient includes the factor of the
  /// loss scale. The hook may change it; the unit below, on whichever stage, reads the changed
  /// values.
  std::function<void(int unit, int microbatch, const Tensor& gradient)> after_backward{};
  /// Called before the sum of a gradient bucket starts (grad_sync_func).
  std::function<void(int bucket)> grad_sync{};
  /// Called after each step with the seconds that this rank spent in each phase, under the names
  /// and in the order of engine/trace.h (timers).
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
  // If false, every token is real and has weight 1; else ranks sum loss weights and real positions.
  bool count_loss_weights = false;
  // Called on each rank after a step; StepReport::request is the largest result of all ranks.
  std::function<int()> request{};
  Hooks hooks{};
  Trace* trace = nullptr;            // records the rows of each training step; may be null
  bool max_attention_logit = false;  // whether to compute StepReport::max_attention_logit
  bool meet = false;                 // a barrier before each phase (log.barrier_with_timers)
  // Advice for a loss or a gradient that is not finite; "" if nothing is known to help.
  std::string_view bad_step_advice{};
};

}  // namespace trainctl
