#include "plan/rules/loss_scaling.h"

#include "config/schema/words.h"
#include "plan/rules/check.h"

namespace trainctl {

LossScaling resolve_loss_scaling(const Config& config) {
  const PrecisionConfig& precision = config.precision;
  if (config.hooks.grad_scale == GradScale::none) return {};
  if (precision.loss_scale) {
    const double scale = *precision.loss_scale;
    return {.on = true, .initial = scale, .least = scale};
  }
  const bool narrow = resolve_compute(precision) == ComputeType::fp16;
  if (!precision.dynamic_loss_scale.value_or(narrow)) return {};
  return {.on = true,
          .initial = precision.initial_loss_scale,
          .least = precision.min_loss_scale,
          .growth = precision.loss_scale_growth,
          .backoff = precision.loss_scale_backoff,
          .window = precision.loss_scale_window,
          .hysteresis = precision.loss_scale_hysteresis};
}

namespace {

void check_compute(const Config& config, Check& check) {
  const PrecisionConfig& precision = config.precision;
  const ComputeType products = resolve_compute(precision);
  if (precision.compute != ComputeType::fp32 && products != precision.compute) {
    check.error("autocast-compute", "precision.autocast_dtype",
                named("autocast_dtype", std::string(word_of(products))) + " and compute (" +
                    std::string(word_of(precision.compute)) +
                    ") are two types for the matrix products",
                "leave compute out, or enable_autocast");
  }
  if (config.hooks.grad_scale == GradScale::none && products == ComputeType::fp16) {
    check.warning("unscaled-fp16", "hooks.grad_scale",
                  "grad_scale is none: in fp16, gradients below 6e-8 become 0",
                  "set grad_scale to loss_scale");
  }
}

}  // namespace

void check_precision(const Config& config, Check& check) {
  const PrecisionConfig& precision = config.precision;
  check_compute(config, check);
  if (precision.loss_scale && precision.dynamic_loss_scale.value_or(false)) {
    check.error(
        "loss-scale-twice", "precision.loss_scale",
        named("loss_scale", number(*precision.loss_scale)) +
            " is a constant scale, but dynamic_loss_scale is true",
        "leave loss_scale out and set initial_loss_scale to " + number(*precision.loss_scale));
    return;
  }
  if (!resolve_loss_scaling(config).dynamic()) {
    const PrecisionConfig usual;
    const std::string reason = config.hooks.grad_scale == GradScale::none
                                   ? "hooks.grad_scale is none"
                               : precision.loss_scale ? "loss_scale is constant"
                                                      : "dynamic_loss_scale is false";
    const auto remark = [&](const char* key, bool differs) {
      check.no_effect(std::string("precision.") + key, differs, reason);
    };
    remark("initial_loss_scale", precision.initial_loss_scale != usual.initial_loss_scale);
    remark("min_loss_scale", precision.min_loss_scale != usual.min_loss_scale);
    remark("loss_scale_growth", precision.loss_scale_growth != usual.loss_scale_growth);
    remark("loss_scale_backoff", precision.loss_scale_backoff != usual.loss_scale_backoff);
    remark("loss_scale_window", precision.loss_scale_window != usual.loss_scale_window);
    remark("loss_scale_hysteresis", precision.loss_scale_hysteresis != usual.loss_scale_hysteresis);
    return;
  }
  const bool clean = check.clean({"precision.min_loss_scale", "precision.initial_loss_scale"});
  if (clean && precision.min_loss_scale > precision.initial_loss_scale) {
    check.error("loss-scale-range", "precision.min_loss_scale",
                named("min_loss_scale", number(precision.min_loss_scale)) + " must be at most " +
                    named("initial_loss_scale", number(precision.initial_loss_scale)),
                "set min_loss_scale to 1");
  }
}

}  // namespace trainctl
