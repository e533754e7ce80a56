// Registers of 16 lanes for the tiles of CPUs with AVX-512: the common part of all kinds of words.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace trainctl {

#ifdef __AVX512BF16__
inline __m256i to_bf16(__m512 value) { return (__m256i)_mm512_cvtneps_pbh(value); }
#else
/// Rounds to nearest even; NaN stays NaN.
inline __m256i to_bf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
}
#endif

struct Lanes16 {
  static constexpr std::int64_t lanes = 16;
  static constexpr std::int64_t tile_rows = 14;   // 14 x 2 sums, 2 of b, 1 of a: 31 of 32 registers
  static constexpr std::int64_t step_words = 1;   // a row's packed words are a multiple of this
  static constexpr std::int64_t max_words = 512;  // chunk length along the summed dim
  static constexpr std::int64_t min_rows = tile_rows;  // the library is faster for fewer rows
  static constexpr std::int64_t min_columns = 2 * lanes;
  static constexpr std::int64_t block_strips = 12;  // strips of a packed together: 384 KiB

  using Vector = __m512i;
  using Sums = __m512;
  using Mask = __mmask16;

  /// A mask with the first `count` of 64 bits set.
  static constexpr __mmask64 low_bits(std::int64_t count) {
    return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
  }
  /// A mask with the first `count` lanes set.
  static Mask mask(std::int64_t count) { return static_cast<Mask>(low_bits(count)); }

  static Vector no_words() { return _mm512_setzero_si512(); }
  static Vector load_words(const std::uint32_t* from) { return _mm512_load_si512(from); }
  static void store_words(std::uint32_t* to, Vector words) { _mm512_store_si512(to, words); }
  static Vector repeat(std::uint32_t word) { return _mm512_set1_epi32(static_cast<int>(word)); }

  static Sums no_sums() { return _mm512_setzero_ps(); }
  static Sums add(Sums a, Sums b) { return _mm512_add_ps(a, b); }
  static Sums load_sums(const float* from) { return _mm512_load_ps(from); }
  static void store_sums(float* to, Sums sums) { _mm512_store_ps(to, sums); }

  static Sums load(const float* from, Mask mask) { return _mm512_maskz_loadu_ps(mask, from); }
  static Sums load(const bf16* from, Mask mask) {
    const __m256i half = _mm256_maskz_loadu_epi16(mask, from);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static Sums load(const fp16* from, Mask mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
  }
  static void store(float* to, Mask mask, Sums value) { _mm512_mask_storeu_ps(to, mask, value); }
  static void store(bf16* to, Mask mask, Sums value) {
    _mm256_mask_storeu_epi16(to, mask, to_bf16(value));
  }
  static void store(fp16* to, Mask mask, Sums value) {
    _mm256_mask_storeu_epi16(to, mask, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }

  /// Transposes a 16 x 16 block of words.
  static void transpose(Vector (&block)[16]) {
    Vector pairs[16];
    for (int i = 0; i < 16; i += 2) {
      pairs[i] = _mm512_unpacklo_epi32(block[i], block[i + 1]);
      pairs[i + 1] = _mm512_unpackhi_epi32(block[i], block[i + 1]);
    }
    Vector fours[16];
    for (int i = 0; i < 16; i += 4) {
      fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
      fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
      fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
      fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    // Quarter q of fours[4 g + c] now holds column 4 q + c of rows 4 g to 4 g + 3.
    for (int c = 0; c < 4; ++c) {
      const Vector even_low = _mm512_shuffle_i32x4(fours[c], fours[4 + c], 0x88);
      const Vector odd_low = _mm512_shuffle_i32x4(fours[c], fours[4 + c], 0xdd);
      const Vector even_high = _mm512_shuffle_i32x4(fours[8 + c], fours[12 + c], 0x88);
      const Vector odd_high = _mm512_shuffle_i32x4(fours[8 + c], fours[12 + c], 0xdd);
      block[c] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
      block[8 + c] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
      block[4 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
      block[12 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
    }
  }
};

// Words of the register tiles on CPUs with AVX-512: 16 lanes. bf16 is in pairs if the CPU
// multiplies pairs (AVX512_BF16), else converted to fp32, like fp16.

struct FloatWords : Lanes16 {
  static constexpr std::int64_t values = 1;
  static constexpr std::int64_t value_bytes = 4;  // bytes of a value in memory

  static Sums multiply_add(Vector a, Vector b, Sums sum) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
  }
  /// Loads 16 words of one row: the values in the next `bytes` bytes at `from`, then zeros.
  static Vector along(const std::byte* from, std::int64_t bytes) {
    return _mm512_maskz_loadu_epi8(low_bits(bytes), from);
  }
  /// Loads the words of up to 16 lanes, which are contiguous at `from`.
  static Vector across(const std::byte* from, std::int64_t, bool, Mask lanes) {
    return _mm512_maskz_loadu_epi32(lanes, from);
  }
};

/// 16-bit values that are converted to fp32 when packed; sums of fp16 need the range of fp32.
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
  /// Like FloatWords::across; the second value of each word is in the next row of memory, if any.
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
