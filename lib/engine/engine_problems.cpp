// Plans that the device has no kernels for, and steps whose loss or gradients are not finite.

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>

#include "base/at.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/text.h"
#include "device/slab.h"
#include "engine/engine.h"
#include "engine/memory/buffers.h"
#include "engine/parameters/param_store.h"
#include "plan/rules/check.h"

namespace trainctl {

// The search for the first infinite or NaN value, which runs only after an error.

namespace {

template <class T>
bool finite(const Tensor& x) {
  const T* values = x.as<T>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (!std::isfinite(to_float(values[i]))) return false;
  }
  return true;
}

/// Whether every element is finite. For fp32, bf16 and fp16; integers are always finite.
bool all_finite(const Tensor& of_device) {
  const HostValues on_host(of_device);
  const Tensor& x = on_host.values();
  if (x.dtype == DType::f32) return finite<float>(x);
  if (x.dtype == DType::bf16) return finite<bf16>(x);
  if (x.dtype == DType::f16) return finite<fp16>(x);
  return true;
}

/// The name of the first tensor with a value that is not finite: parameters in model order, then
/// the activations that the last micro-batch's forward kept in `view`, then gradients. "" if all
/// are finite.
std::string first_bad_tensor(const StagePlan& stage, const ParamStore& store,
                             const Buffers& buffers, int view) {
  const int count = static_cast<int>(store.table().size());
  for (int i = 0; i < count; ++i) {
    const std::string& name = at(store.table(), i).name;
    const bool finite =
        all_finite(store.master(i)) && (!store.stays(i) || all_finite(store.resident(i)));
    if (!finite) return "parameter " + name;
  }
  for (const ActivationSpec& spec : stage.activations) {
    const bool kept = spec.storage == Storage::input || spec.storage == Storage::forward ||
                      spec.storage == Storage::statistic || spec.storage == Storage::host;
    const auto row = static_cast<std::size_t>(&spec - stage.activations.data());
    const ActivationSlots& slots = stage.activation_slots;
    if (!kept || !slots.lasts(row) || !slots.has(row, view)) continue;
    if (!all_finite(buffers.at(view, static_cast<int>(row)))) return "activation " + spec.name;
  }
  for (int i = 0; i < count; ++i) {
    const std::string& name = at(store.table(), i).name;
    if (!all_finite(store.gradient(i))) return "gradient of " + name;
  }
  return "";
}

}  // namespace

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
    if (std::ranges::find(unused, name) == unused.end()) missing.emplace_back(name);
  }
  return missing;
}

namespace {

/// The input's advice, followed by `more`; empty where the input has none.
std::string with_advice(const EngineInput& input, const char* more) {
  if (input.bad_step_advice.empty()) return "";
  return ". " + std::string(input.bad_step_advice) + more;
}

}  // namespace

/// Whether the loss scale may explain a gradient that is not finite: always while the scale can
/// still fall, otherwise only for the first such step in a row.
bool Engine::scale_explains_overflow() const {
  const LossScaling& scaling = input_.loss_scaling;
  return scaling.on && (scale_ > scaling.least || skipped_in_row_ < 2);
}

/// Needs the losses of all ranks in shared_.
void Engine::throw_bad_step() const {
  const std::string step = formatted("step {}", completed_ + 1);
  const int view = rows().activation_slots.view_of.back();
  const auto self = static_cast<std::size_t>(world_.rank());
  std::size_t culprit = 0;
  while (culprit < shared_.size() && std::isfinite(shared_[culprit][0])) ++culprit;
  const bool loss_is_bad = culprit < shared_.size();
  if (loss_is_bad && std::isfinite(shared_[self][0])) {
    throw Error(ExitCode::diverged,
                formatted("{}: the loss of rank {} is not finite; its own message names the tensor",
                          step, culprit));
  }
  if (!loss_is_bad && input_.loss_scaling.on) {
    throw Error(ExitCode::diverged,
                formatted("{}: gradients overflowed in {} steps in a row, the last with loss scale "
                          "{}, which cannot fall: {}",
                          step, skipped_in_row_, number(scale_),
                          input_.loss_scaling.dynamic() ? "it is precision.min_loss_scale"
                                                        : "precision.loss_scale is constant"));
  }
  const std::string tensor = first_bad_tensor(rows(), store_, buffers_, view);
  throw Error(ExitCode::diverged,
              formatted("{}, rank {}: the {} is not finite{}{}", step, world_.rank(),
                        loss_is_bad ? "loss" : "gradient norm",
                        tensor.empty() ? "" : "; the first bad tensor is the " + tensor,
                        with_advice(input_, "; train.on_bad_loss: skip leaves such updates out")));
}

/// Needs the losses of all ranks in shared_. Under `skip`, every rank throws the same error.
void Engine::check_bad_steps() const {
  const TrainConfig& train = input_.train;
  if (train.on_bad_loss == "stop") throw_bad_step();
  require(
      skipped_in_row_ <= train.max_bad_steps, ExitCode::diverged,
      formatted("step {}: the loss or a gradient is not finite, as in {} steps before it; "
                "train.max_bad_steps allows {} in a row{}",
                completed_ + 1, skipped_in_row_ - 1, train.max_bad_steps, with_advice(input_, "")));
}

}  // namespace trainctl
