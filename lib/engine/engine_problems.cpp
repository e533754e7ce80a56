// Plans that the device has no kernels for, and steps whose loss or gradients are not finite.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/error.h"
#include "engine/diagnose.h"
#include "engine/engine.h"
#include "plan/rules/check.h"

namespace trainctl {

std::vector<std::string> missing_for(const Plan& plan, const Kernels& kernels) {
  const ModelShape& model = plan.model;
  std::vector<std::string> unused;
  const auto leave_out = [&](std::initializer_list<const char*> names) {
    unused.insert(unused.end(), names.begin(), names.end());
  };
  if (model.ropes.empty() && model.temperatures.empty()) leave_out({"rope"});
  const bool whole_norms = model.qk_norm_form == QkNormForm::whole && plan.mesh.tp > 1;
  if (!whole_norms) leave_out({"norm_sums"});
  const bool sinks = std::ranges::any_of(model.kinds, &LayerKind::sinks);
  if (!sinks) leave_out({"attention_sink_forward", "attention_sink_backward"});
  const bool matrices = std::ranges::any_of(
      plan.stages, [](const StagePlan& stage) { return !stage.matrices.empty(); });
  if (!matrices) leave_out({"scaled_sum", "copy_rows"});
  if (plan.context.most(&ContextSplit::ring) == 1) leave_out({"attention_merge"});
  if (plan.context.most(&ContextSplit::heads) == 1) leave_out({"swap_blocks"});
  if (model.experts == 1) {
    leave_out({"router_forward", "router_backward", "router_losses", "router_statistics",
               "spread_rows", "collect_rows", "scale_rows", "scale_rows_backward"});
  }
  if (model.experts == 1 || !model.mlp_bias) leave_out({"bias_rows", "bias_rows_backward"});
  std::vector<std::string> missing;
  for (std::string_view name : missing_kernels(kernels)) {
    if (std::find(unused.begin(), unused.end(), name) == unused.end()) missing.emplace_back(name);
  }
  return missing;
}

namespace {

/// What helps, and what else does; nothing where the input says nothing.
std::string with_advice(const EngineInput& input, const char* more) {
  if (input.bad_step_advice.empty()) return "";
  return ". " + std::string(input.bad_step_advice) + more;
}

}  // namespace

/// Whether a gradient that is not finite may be the loss scale's doing: always while the scale can
/// fall, else once.
bool Engine::scale_explains_overflow() const {
  const LossScaling& scaling = input_.loss_scaling;
  return scaling.on && (scale_ > scaling.least || skipped_in_row_ < 2);
}

/// After the losses were shared.
void Engine::throw_bad_step() const {
  const std::string step = "step " + std::to_string(completed_ + 1);
  const int view = rows().activation_slots.view_of.back();
  const auto self = static_cast<std::size_t>(world_.rank());
  std::size_t culprit = 0;
  while (culprit < shared_.size() && std::isfinite(shared_[culprit][0])) ++culprit;
  const bool loss_is_bad = culprit < shared_.size();
  if (loss_is_bad && std::isfinite(shared_[self][0])) {
    throw Error(ExitCode::diverged, step + ": the loss of rank " + std::to_string(culprit) +
                                        " is not finite; its own message names the tensor");
  }
  if (!loss_is_bad && input_.loss_scaling.on) {
    throw Error(ExitCode::diverged,
                step + ": gradients overflowed in " + std::to_string(skipped_in_row_) +
                    " steps in a row, the last with loss scale " + number(scale_) +
                    ", which cannot fall: " +
                    (input_.loss_scaling.dynamic() ? "it is precision.min_loss_scale"
                                                   : "precision.loss_scale is constant"));
  }
  const std::string tensor = first_bad_tensor(rows(), store_, buffers_, view);
  throw Error(ExitCode::diverged,
              step + ", rank " + std::to_string(world_.rank()) + ": the " +
                  (loss_is_bad ? "loss" : "gradient norm") + " is not finite" +
                  (tensor.empty() ? "" : "; the first bad tensor is the " + tensor) +
                  with_advice(input_, "; train.on_bad_loss: skip leaves such updates out"));
}

/// After the losses were shared. A run that skips says the same on every rank.
void Engine::check_bad_steps() const {
  const TrainConfig& train = input_.train;
  if (train.on_bad_loss == OnBadLoss::stop) throw_bad_step();
  require(
      skipped_in_row_ <= train.max_bad_steps, ExitCode::diverged,
      "step " + std::to_string(completed_ + 1) + ": the loss or a gradient is not finite, as in " +
          std::to_string(skipped_in_row_ - 1) + " steps before it; train.max_bad_steps allows " +
          std::to_string(train.max_bad_steps) + " in a row" + with_advice(input_, ""));
}

}  // namespace trainctl
