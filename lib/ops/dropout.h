// Dropout whose mask is a function of the element's global place, so every layout and both passes
// agree:
//   keep = uniform(Philox(seed, site_stream(step, site)), token * features + feature) >= p,  x =
//   keep ? x/(1-p) : 0.
#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "ops/context.h"
#include "ops/step_state.h"

namespace trainctl {

/// Names one use of dropout within a step: `site` counts them through the whole model.
struct DropoutKey {
  const StepState* state = nullptr;  // device memory: seed and step
  std::int64_t site = 0;
  float probability = 0;
};

/// The Philox stream of a site in a step.
constexpr std::uint64_t dropout_stream(std::int64_t step, std::int64_t site) {
  return (static_cast<std::uint64_t>(site + 1) << 40) ^ static_cast<std::uint64_t>(step);
}

struct Dropout {
  // [rows, features] fp32, bf16 or fp16, in place: activations forward, gradients backward
  Tensor x;
  Tensor global_token;             // [rows] i64: global sample index * seq_length + position
  std::int64_t first_feature = 0;  // of this shard
  std::int64_t features = 0;       // over all shards
  DropoutKey key;
};

void dropout(const OpContext& context, const Dropout& args);

}  // namespace trainctl
