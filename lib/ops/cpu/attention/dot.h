// How attention's products multiply: on fp32 values, or on pairs of bf16 values where the machine
// has an instruction for that. Internal to lib/ops/cpu.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/cpu/attention/tile.h"

namespace trainctl {

/// Each Dot says what a 32-bit unit of a panel holds (`depth` values that are neighbours along the
/// summed dim), and has the product of two panels, C (+)= A B. Rows of C are rounded up to
/// row_step, columns to column_step; a range of steps is widened to step_values values, for which
/// one panel is zero and the other finite. first_row_of(column) is the first row that is needed of
/// the columns that begin there, steps_of(row) what row_step rows from `row` on need. Its Registers
/// live while a thread multiplies.
struct FloatDot : VectorProducts<FloatDot, float> {
  static constexpr int depth = 1;
  static constexpr int step_values = 1;

  static Vector add_product(Vector sum, float a, const float* b) {
    return sum + a * *reinterpret_cast<const Vector*>(b);
  }
};

}  // namespace trainctl

#if defined(__AMX_BF16__)
#include "ops/cpu/attention/dot_amx.h"
namespace trainctl {
using Bf16Dot = TileDot;
}  // namespace trainctl
#elif defined(__AVX512BF16__)
#include "ops/cpu/attention/dot_avx512bf16.h"
namespace trainctl {
using Bf16Dot = PairDot;
}  // namespace trainctl
#else
namespace trainctl {
using Bf16Dot = FloatDot;
}  // namespace trainctl
#endif
