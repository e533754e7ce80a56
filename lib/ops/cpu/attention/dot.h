// How attention's products multiply: on fp32 values, or on pairs of bf16 values where the machine
// has an instruction for that. Each Dot says what a 32-bit unit of a panel holds (`depth` values
// that are neighbours along the summed dim). Internal to attention_cpu.cpp.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/cpu/attention/tile.h"

namespace trainctl {

struct FloatDot {
  using Unit = float;
  static constexpr int depth = 1;

  static Vector add_product(Vector sum, float a, const float* b) {
    return sum + a * *reinterpret_cast<const Vector*>(b);
  }
};

}  // namespace trainctl

#if defined(__AVX512BF16__)
#include "ops/cpu/attention/dot_avx512bf16.h"
#else
namespace trainctl {
using Bf16Dot = FloatDot;
}  // namespace trainctl
#endif
