// Finding where numbers went wrong. Cold paths only.
#pragma once

#include <string>

#include "engine/buffers.h"
#include "engine/parameters/param_store.h"

namespace trainctl {

/// Whether every element is finite. fp32, bf16 or fp16; integers always are.
bool all_finite(const Tensor& x);

/// The first tensor with a value that is not finite: parameters in model order, then what the
/// forward pass of `slot` kept, in its order, then gradients. "" if all are finite.
std::string first_bad_tensor(const StagePlan& stage, const ParamStore& store,
                             const Buffers& buffers, int slot);

}  // namespace trainctl
