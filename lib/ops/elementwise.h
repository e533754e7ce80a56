// Operations on each element by itself: sums, casts, initial values and dropout.
#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

// y = a + factor b, element by element, or y = factor b. The sum is taken in fp32 and rounded to
// nearest even.

struct Add {
  Tensor a;  // any shape, fp32, bf16 or fp16; absent: 0, in the type of y
  Tensor b;  // the same shape, in the type of a or in fp32
  Tensor y;  // as a, overwritten; may be the same memory as a or b
  float factor = 1;
};

void add(const OpContext& context, const Add& args);

// y = x in another float type, rounded to nearest even.

struct Cast {
  Tensor x;  // fp32, bf16 or fp16
  Tensor y;  // fp32, bf16 or fp16, same numel, overwritten
};

void cast(const OpContext& context, const Cast& args);

// z = alpha x + beta y, element by element, in fp32, rounded to nearest even. With `squares`, alpha
// is divided by max(sqrt(*squares), least): a tensor is brought to a norm of 1; where both are 0, z
// has no part of x.

struct ScaledSum {
  Tensor x;    // any shape, fp32 or bf16
  Tensor y{};  // optional, of the same shape, fp32 or bf16
  Tensor z;    // overwritten, of the same shape, fp32 or bf16; may be the same memory as x or y
  float alpha = 1;
  float beta = 1;
  const double* squares = nullptr;  // device memory
  float least = 0;
};

/// alpha as it multiplies x.
constexpr float divided(float alpha, double root, float least) {
  const double divisor = root > static_cast<double>(least) ? root : static_cast<double>(least);
  return divisor > 0 ? static_cast<float>(static_cast<double>(alpha) / divisor) : 0.0F;
}

void scaled_sum(const OpContext& context, const ScaledSum& args);

// x[i] = deviation * normal(Philox(seed, stream), first + i): initial weights that no layout can
// change.

struct NormalFill {
  Tensor x;  // [n] fp32, or bf16 to which values are rounded; overwritten
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // the tensor's identity
  std::int64_t first = 0;    // global index of x[0]
  float deviation = 1;
};

void normal_fill(const OpContext& context, const NormalFill& args);

// Dropout whose mask is a function of the element's global place, so every layout and both passes
// agree:
//   keep = uniform(Philox(seed, site_stream(step, site)), token * features + feature) >= p,  x =
//   keep ? x/(1-p) : 0.

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
