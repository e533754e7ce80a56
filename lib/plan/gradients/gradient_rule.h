// What gradients are, and how they travel.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "config/schema/choices.h"

namespace trainctl {

/// Of what gradients are the gradient once they are summed, and how they travel.
struct GradientRule {
  BucketRule buckets = BucketRule::size;
  DType dtype = DType::f32;  // in which they are sent; layers make them in fp32
  DType kept = DType::f32;   // in which those of several micro-batches are added up
  // Over the mean loss's: replicas without gradients_mean, times tp without loss_repeated_mean.
  std::int64_t factor = 1;
  bool fused = true;  // products add to weight gradients themselves (gradient_accumulation_fusion)
};

}  // namespace trainctl
