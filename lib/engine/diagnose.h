// Finds where a value became infinite or NaN. Runs only after an error.
#pragma once

#include <string>

#include "engine/memory/buffers.h"
#include "engine/parameters/param_store.h"

namespace trainctl {

/// Whether every element is finite. For fp32, bf16 and fp16; integers are always finite.
bool all_finite(const Tensor& x);

/// The first tensor with a value that is not finite: parameters in model order, then the tensors
/// that the last micro-batch's forward kept in `view`, in their order, then gradients. "" if all
/// are finite.
std::string first_bad_tensor(const StagePlan& stage, const ParamStore& store,
                             const Buffers& buffers, int view);

}  // namespace trainctl
