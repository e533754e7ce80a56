// The one summation of all host groups: element by element in fp32, in group-rank order. Because
// every wire calls it, threads and MPI give bit-identical sums, however the data are split.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace trainctl {

/// out[i] = (parts[0][i] + parts[1][i]) + ... for `count` elements of f32, bf16 or f16; the 16-bit
/// types are rounded once, at the end. `out` may be one of the parts.
void sum_in_rank_order(void* out, std::span<const void* const> parts, std::int64_t count,
                       DType dtype);

}  // namespace trainctl
