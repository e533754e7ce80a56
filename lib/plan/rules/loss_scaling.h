// Whether the loss is multiplied by a factor for the backward, so that small gradients stay within
// the range of fp16, and how the factor moves.
#pragma once

#include <cstdint>

#include "config/schema/config.h"

namespace trainctl {

/// A constant scale is a dynamic one that neither grows nor falls, and none is the constant 1.
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

LossScaling resolve_loss_scaling(const PrecisionConfig& precision);

}  // namespace trainctl
