// Words of the register tiles on CPUs with AVX-512: 16 lanes, and bf16 in pairs where the CPU
// multiplies pairs (AVX512_BF16), else widened to fp32 like fp16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/matmul/lanes_avx512.h"

namespace trainctl {

struct FloatWords : Lanes16 {
  static constexpr std::int64_t values = 1;
  static constexpr std::int64_t value_bytes = 4;  // in memory

  static Sums multiply_add(Vector a, Vector b, Sums sum) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
  }
  /// 16 words of one row: the values of the next `bytes` bytes at `from`, then zeros.
  static Vector along(const std::byte* from, std::int64_t bytes) {
    return _mm512_maskz_loadu_epi8(low_bits(bytes), from);
  }
  /// The words of up to 16 lanes that lie side by side at `from`.
  static Vector across(const std::byte* from, std::int64_t, bool, Mask lanes) {
    return _mm512_maskz_loadu_epi32(lanes, from);
  }
};

/// Values of 16 bits that packing makes fp32. fp16: their sums need that range.
template <class Half>
struct WidenedWords : FloatWords {
  static constexpr std::int64_t value_bytes = 2;

  static Vector along(const std::byte* from, std::int64_t bytes) {
    const auto mask = static_cast<__mmask32>(low_bits(bytes));
    return widen(_mm256_maskz_loadu_epi8(mask, from), Half{});
  }
  static Vector across(const std::byte* from, std::int64_t, bool, Mask lanes) {
    return widen(_mm256_maskz_loadu_epi16(lanes, from), Half{});
  }

 private:
  static Vector widen(__m256i halves, fp16) { return _mm512_castps_si512(_mm512_cvtph_ps(halves)); }
  static Vector widen(__m256i halves, bf16) {
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
  }
};

using Fp16Words = WidenedWords<fp16>;

#ifdef __AVX512BF16__
struct Bf16Pairs : Lanes16 {
  static constexpr std::int64_t values = 2;
  static constexpr std::int64_t value_bytes = 2;

  static Sums multiply_add(Vector a, Vector b, Sums sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  static Vector along(const std::byte* from, std::int64_t bytes) {
    return _mm512_maskz_loadu_epi8(low_bits(bytes), from);
  }
  /// As above; the second value of each word comes from the next row of memory, if there is one.
  static Vector across(const std::byte* from, std::int64_t row_bytes, bool has_next, Mask lanes) {
    const __m256i low = _mm256_maskz_loadu_epi16(lanes, from);
    const __m256i high =
        has_next ? _mm256_maskz_loadu_epi16(lanes, from + row_bytes) : _mm256_setzero_si256();
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
  }
};
using Bf16Words = Bf16Pairs;
#else
using Bf16Words = WidenedWords<bf16>;
#endif

}  // namespace trainctl
