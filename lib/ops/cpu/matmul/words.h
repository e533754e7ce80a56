// What the register tiles of tiles_avx512.cpp work on. A word is 32 bits of one row along the
// summed dim: one fp32 value, which may be 16 bits in memory, or two neighbouring bf16 values where
// the level multiplies pairs of them. A strip holds up to 16 rows: 16 words (one per row, missing
// rows zero) for each step along that dim.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "base/dtype.h"

namespace trainctl {

inline constexpr std::int64_t strip_lanes = 16;

/// The first `count` of up to 64 bits.
constexpr __mmask64 low_bits(std::int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

struct FloatWords {
  static constexpr std::int64_t values = 1;
  static constexpr std::int64_t value_bytes = 4;  // in memory

  static __m512 multiply_add(__m512i a, __m512i b, __m512 sum) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
  }
  /// 16 words of one row: the values of the next `bytes` bytes at `from`, then zeros.
  static __m512i along(const std::byte* from, std::int64_t bytes) {
    return _mm512_maskz_loadu_epi8(low_bits(bytes), from);
  }
  /// The words of up to 16 lanes that lie side by side at `from`.
  static __m512i across(const std::byte* from, std::int64_t, bool, __mmask16 lanes) {
    return _mm512_maskz_loadu_epi32(lanes, from);
  }
};

/// fp16 values that packing makes fp32: their sums need that range.
struct Fp16Words : FloatWords {
  static constexpr std::int64_t value_bytes = 2;

  static __m512i along(const std::byte* from, std::int64_t bytes) {
    return widen(_mm256_maskz_loadu_epi8(static_cast<__mmask32>(low_bits(bytes)), from));
  }
  static __m512i across(const std::byte* from, std::int64_t, bool, __mmask16 lanes) {
    return widen(_mm256_maskz_loadu_epi16(lanes, from));
  }

 private:
  static __m512i widen(__m256i halves) { return _mm512_castps_si512(_mm512_cvtph_ps(halves)); }
};

#if defined(__AVX512BF16__)

struct Bf16Words {
  static constexpr std::int64_t values = 2;
  static constexpr std::int64_t value_bytes = 2;

  static __m512 multiply_add(__m512i a, __m512i b, __m512 sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  static __m512i along(const std::byte* from, std::int64_t bytes) {
    return _mm512_maskz_loadu_epi8(low_bits(bytes), from);
  }
  /// As above; the second value of each word comes from the next row of memory, if there is one.
  static __m512i across(const std::byte* from, std::int64_t row_bytes, bool has_next,
                        __mmask16 lanes) {
    const __m256i low = _mm256_maskz_loadu_epi16(lanes, from);
    const __m256i high =
        has_next ? _mm256_maskz_loadu_epi16(lanes, from + row_bytes) : _mm256_setzero_si256();
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
  }
};

/// 16 values rounded to nearest even.
inline __m256i to_bf16(__m512 values) { return (__m256i)_mm512_cvtneps_pbh(values); }

#else

/// bf16 values that packing makes fp32.
struct Bf16Words : FloatWords {
  static constexpr std::int64_t value_bytes = 2;

  static __m512i along(const std::byte* from, std::int64_t bytes) {
    return widen(_mm256_maskz_loadu_epi8(static_cast<__mmask32>(low_bits(bytes)), from));
  }
  static __m512i across(const std::byte* from, std::int64_t, bool, __mmask16 lanes) {
    return widen(_mm256_maskz_loadu_epi16(lanes, from));
  }

 private:
  static __m512i widen(__m256i values) {
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16);
  }
};

/// As to_bf16 in base/dtype.h.
inline __m256i to_bf16(__m512 values) {
  const __m512i wide = _mm512_castps_si512(values);
  const __m512i upper = _mm512_srli_epi32(wide, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(wide, half), 16);
  const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet));
}

#endif

/// Rows become columns of a 16 x 16 block of words.
inline void transpose_words(__m512i (&block)[16]) {
  __m512i pairs[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(block[i], block[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(block[i], block[i + 1]);
  }
  __m512i fours[16];
  for (int i = 0; i < 16; i += 4) {
    fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  // Quarter q of fours[4 g + c] now holds column 4 q + c of rows 4 g to 4 g + 3.
  for (int c = 0; c < 4; ++c) {
    const __m512i even_low = _mm512_shuffle_i32x4(fours[c], fours[4 + c], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(fours[c], fours[4 + c], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(fours[8 + c], fours[12 + c], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(fours[8 + c], fours[12 + c], 0xdd);
    block[c] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    block[8 + c] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    block[4 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    block[12 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

}  // namespace trainctl
