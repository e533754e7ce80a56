#include "plan/loss_scaling.h"

namespace trainctl {

LossScaling resolve_loss_scaling(const PrecisionConfig& precision) {
  if (precision.compute != ComputeType::fp16) return {};
  return {.on = true,
          .initial = 0x1p32,
          .least = 1,
          .growth = 2,
          .backoff = 0.5,
          .window = 1000,
          .hysteresis = 2};
}

}  // namespace trainctl
