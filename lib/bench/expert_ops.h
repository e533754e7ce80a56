// The operations of a layer of experts for `trainctl bench ops`: the router, rows to their experts
// and back, and the products of all experts, one after the other.
#pragma once

#include "bench/op_case.h"

namespace trainctl {

/// Of block `layer`, whose input of experts (layers.N.norm2) is filled. The router chooses once.
void add_expert_cases(const OpTensors& of, std::int64_t layer);

}  // namespace trainctl
