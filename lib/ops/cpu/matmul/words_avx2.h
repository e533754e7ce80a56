// Words of the register tiles on CPUs with AVX2, FMA and F16C (x86-64-v3): 8 lanes; values of 16
// bits are widened to fp32 when they are packed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/matmul/lanes_avx2.h"

namespace trainctl {

struct FloatWords : Lanes8 {
  static constexpr std::int64_t values = 1;
  static constexpr std::int64_t value_bytes = 4;  // in memory

  static Sums multiply_add(Vector a, Vector b, Sums sum) {
    return _mm256_fmadd_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), sum);
  }
  /// 8 words of one row: the values of the next `bytes` bytes at `from`, then zeros.
  static Vector along(const std::byte* from, std::int64_t bytes) {
    return across(from, 0, false, bytes / value_bytes);
  }
  /// The words of up to 8 lanes that lie side by side at `from`.
  static Vector across(const std::byte* from, std::int64_t, bool, Mask count) {
    if (count >= lanes) return _mm256_loadu_si256(reinterpret_cast<const Vector*>(from));
    return _mm256_maskload_epi32(reinterpret_cast<const int*>(from), bits_of(count));
  }
};

/// Values of 16 bits that packing makes fp32.
template <class Half>
struct WidenedWords : FloatWords {
  static constexpr std::int64_t value_bytes = 2;

  static Vector along(const std::byte* from, std::int64_t bytes) {
    return across(from, 0, false, bytes / value_bytes);
  }
  static Vector across(const std::byte* from, std::int64_t, bool, Mask count) {
    return _mm256_castps_si256(widen(load_halves(from, count), Half{}));
  }
};

using Fp16Words = WidenedWords<fp16>;
using Bf16Words = WidenedWords<bf16>;

}  // namespace trainctl
