// Elementwise operations: sums, casts, initial values and dropout.
#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

// y = a + factor b, elementwise, or y = factor b without a. Computed in fp32 and rounded to nearest
// even.

struct Add {
  Tensor a;  // any shape, fp32, bf16 or fp16; if absent: zeros of y's type
  Tensor b;  // same shape; in the type of a, or fp32
  Tensor y;  // as a, overwritten; may be the same memory as a or b
  float factor = 1;
};

void add(const OpContext& context, const Add& args);

// Converts x to another float type, rounded to nearest even.

struct Cast {
  Tensor x;  // fp32, bf16 or fp16
  Tensor y;  // fp32, bf16 or fp16, same numel, overwritten
};

void cast(const OpContext& context, const Cast& args);

// z = alpha x + beta y, elementwise, in fp32, rounded to nearest even. With `squares`, alpha is
// divided by max(sqrt(*squares), least), which scales a tensor to norm 1; if that maximum is 0, x
// is left out.

struct ScaledSum {
  Tensor x;    // any shape, fp32 or bf16
  Tensor y{};  // optional, same shape, fp32 or bf16
  Tensor z;    // same shape, fp32 or bf16, overwritten; may share memory with x or y
  float alpha = 1;
  float beta = 1;
  const double* squares = nullptr;  // device memory
  float least = 0;
};

/// alpha divided by max(root, least), or 0 if that is 0.
constexpr float divided(float alpha, double root, float least) {
  const double divisor = root > static_cast<double>(least) ? root : static_cast<double>(least);
  return divisor > 0 ? static_cast<float>(static_cast<double>(alpha) / divisor) : 0.0F;
}

void scaled_sum(const OpContext& context, const ScaledSum& args);

// x[i] = deviation * normal(Philox(seed, stream), first + i): initial weights that are independent
// of the layout.

struct NormalFill {
  Tensor x;  // [n] fp32, or bf16 (rounded); overwritten
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // identifies the tensor
  std::int64_t first = 0;    // global index of x[0]
  float deviation = 1;
};

void normal_fill(const OpContext& context, const NormalFill& args);

// Dropout with a mask that depends only on the element's global index, so that all layouts and both
// passes use the same mask:
//   keep = uniform(Philox(seed, site_stream(step, site)), token * features + feature) >= p,  x =
//   keep ? x/(1-p) : 0.

/// Identifies one use of dropout within a step: `site` numbers the uses in the whole model.
struct DropoutKey {
  const StepState* state = nullptr;  // device memory: seed and step
  std::int64_t site = 0;
  float probability = 0;
};

/// The Philox stream for a site in a step.
constexpr std::uint64_t dropout_stream(std::int64_t step, std::int64_t site) {
  return (static_cast<std::uint64_t>(site + 1) << 40) ^ static_cast<std::uint64_t>(step);
}

struct Dropout {
  // [rows, features] fp32, bf16 or fp16, in place: activations forward, gradients backward
  Tensor x;
  Tensor global_token;             // [rows] i64: global sample index * seq_length + position
  std::int64_t first_feature = 0;  // index of this shard's first feature
  std::int64_t features = 0;       // total over all shards
  DropoutKey key;
};

void dropout(const OpContext& context, const Dropout& args);

}  // namespace trainctl
