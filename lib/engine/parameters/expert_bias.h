// The biases that routers add to the scores of experts in the choice. No gradient reaches them.
#pragma once

#include "engine/parameters/param_store.h"
#include "plan/tables/model.h"

namespace trainctl {

/// At the end of a step: each bias that this rank updates rises by model.bias_rate if its expert
/// was chosen less often than the mean of its layer, and falls by it if more often (Wang et al.
/// 2024, algorithm 1). `sums` are Pass::router_sums, added up over all ranks. Numbers of choices
/// are whole, so the result is the same on every layout.
void move_expert_biases(const ModelShape& model, const Tensor& sums, const ParamStore& store);

}  // namespace trainctl
