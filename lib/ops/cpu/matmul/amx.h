// Products of bf16 in the tile registers of AMX. Internal to lib/ops/cpu.
#pragma once

#include "ops/matmul.h"

namespace trainctl {

/// False, having done nothing, where the library is better or scratch is too small. m, n and k must
/// be positive, a and b bf16.
bool matmul_amx(const OpContext& context, const Matmul& args);

}  // namespace trainctl
