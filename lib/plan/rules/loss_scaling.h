// Loss scaling: the factor on the loss that keeps small gradients within the range of fp16, and how
// the factor changes from step to step.
#pragma once

#include <cstdint>

#include "config/schema/config.h"

namespace trainctl {

/// A constant scale has growth and backoff 1; without loss scaling the scale is the constant 1.
struct LossScaling {
  bool on = false;
  double initial = 1;
  double least = 1;
  double growth = 1;
  double backoff = 1;
  std::int64_t window = 1;
  std::int64_t hysteresis = 1;

  bool dynamic() const { return backoff < 1; }
  bool operator==(const LossScaling&) const = default;
};

/// The loss scaling that the configuration asks for, with all defaults filled in.
LossScaling resolve_loss_scaling(const Config& config);

}  // namespace trainctl
