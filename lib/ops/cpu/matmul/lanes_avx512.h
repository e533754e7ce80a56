// Registers of 16 lanes, for the tiles of CPUs with AVX-512: what all kinds of words share.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/dtype.h"
#include "base/fp16.h"

namespace trainctl {

#ifdef __AVX512BF16__
inline __m256i to_bf16(__m512 value) { return (__m256i)_mm512_cvtneps_pbh(value); }
#else
/// To nearest even; NaN stays one.
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
  static constexpr std::int64_t tile_rows = 14;  // 14 x 2 sums, 2 of b, 1 of a: 31 of 32 registers
  static constexpr std::int64_t step_words = 1;  // packed words of a row: a multiple of this
  static constexpr std::int64_t most_words = 512;        // of the summed dim per chunk
  static constexpr std::int64_t least_rows = tile_rows;  // below, the library is faster
  static constexpr std::int64_t least_columns = 2 * lanes;
  static constexpr std::int64_t block_strips = 12;  // of a, packed together: 384 KiB

  using Vector = __m512i;
  using Sums = __m512;
  using Mask = __mmask16;

  /// The first `count` of up to 64 bits.
  static constexpr __mmask64 low_bits(std::int64_t count) {
    return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
  }
  /// Of the first `count` lanes.
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

  /// Rows become columns of a 16 x 16 block of words.
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

}  // namespace trainctl
