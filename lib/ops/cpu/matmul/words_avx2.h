// Registers of 8 lanes, for the tiles of CPUs with AVX2, FMA and F16C (x86-64-v3): what all kinds
// of words share.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace trainctl {

struct Lanes8 {
  static constexpr std::int64_t lanes = 8;
  static constexpr std::int64_t tile_rows = 6;    // 6 x 2 sums, 2 of b, 1 of a: 15 of 16 registers
  static constexpr std::int64_t step_words = 1;   // packed words of a row: a multiple of this
  static constexpr std::int64_t max_words = 256;  // of the summed dim per chunk
  static constexpr std::int64_t min_rows = 1;     // the library would allocate in every call
  static constexpr std::int64_t min_columns = 1;
  static constexpr std::int64_t block_strips = 24;  // of a, packed together: 192 KiB

  using Vector = __m256i;
  using Sums = __m256;
  using Mask = std::int64_t;  // the number of leading lanes

  static Mask mask(std::int64_t count) { return count; }

  static Vector no_words() { return _mm256_setzero_si256(); }
  static Vector load_words(const std::uint32_t* from) {
    return _mm256_load_si256(reinterpret_cast<const Vector*>(from));
  }
  static void store_words(std::uint32_t* to, Vector words) {
    _mm256_store_si256(reinterpret_cast<Vector*>(to), words);
  }
  static Vector repeat(std::uint32_t word) { return _mm256_set1_epi32(static_cast<int>(word)); }

  static Sums no_sums() { return _mm256_setzero_ps(); }
  static Sums add(Sums a, Sums b) { return _mm256_add_ps(a, b); }
  static Sums load_sums(const float* from) { return _mm256_load_ps(from); }
  static void store_sums(float* to, Sums sums) { _mm256_store_ps(to, sums); }

  static Sums load(const float* from, Mask mask) {
    return mask == lanes ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, bits_of(mask));
  }
  static Sums load(const bf16* from, Mask mask) { return widen(load_halves(from, mask), bf16{}); }
  static Sums load(const fp16* from, Mask mask) { return widen(load_halves(from, mask), fp16{}); }
  static void store(float* to, Mask mask, Sums value) {
    if (mask == lanes) {
      _mm256_storeu_ps(to, value);
    } else {
      _mm256_maskstore_ps(to, bits_of(mask), value);
    }
  }
  static void store(bf16* to, Mask mask, Sums value) { store_halves(to, mask, to_bf16(value)); }
  static void store(fp16* to, Mask mask, Sums value) {
    store_halves(to, mask, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }

  /// Rows become columns of an 8 x 8 block of words.
  static void transpose(Vector (&block)[8]) {
    Vector pairs[8];
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_epi32(block[i], block[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_epi32(block[i], block[i + 1]);
    }
    Vector fours[8];
    for (int i = 0; i < 8; i += 4) {
      fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
      fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
      fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
      fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    // Half h of fours[4 g + c] now holds column 4 h + c of rows 4 g to 4 g + 3.
    for (int c = 0; c < 4; ++c) {
      block[c] = _mm256_permute2x128_si256(fours[c], fours[4 + c], 0x20);
      block[4 + c] = _mm256_permute2x128_si256(fours[c], fours[4 + c], 0x31);
    }
  }

 protected:
  static Vector bits_of(Mask mask) {
    const Vector place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(mask)), place);
  }
  /// Up to 8 values of 16 bits, then zeros.
  static __m128i load_halves(const void* from, std::int64_t count) {
    if (count >= lanes) return _mm_loadu_si128(static_cast<const __m128i*>(from));
    alignas(16) std::uint16_t values[lanes] = {};
    if (count > 0) std::memcpy(values, from, static_cast<std::size_t>(count) * 2);
    return _mm_load_si128(reinterpret_cast<const __m128i*>(values));
  }
  static void store_halves(void* to, std::int64_t count, __m128i halves) {
    if (count >= lanes) {
      _mm_storeu_si128(static_cast<__m128i*>(to), halves);
    } else {
      std::memcpy(to, &halves, static_cast<std::size_t>(count) * 2);
    }
  }
  static Sums widen(__m128i halves, fp16) { return _mm256_cvtph_ps(halves); }
  static Sums widen(__m128i halves, bf16) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  /// To nearest even; NaN stays one.
  static __m128i to_bf16(Sums value) {
    const Vector bits = _mm256_castps_si256(value);
    const Vector odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const Vector rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const Vector quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const Vector nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const Vector high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
};

// Words of the register tiles on CPUs with AVX2, FMA and F16C (x86-64-v3): 8 lanes; values of 16
// bits are widened to fp32 when they are packed.

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
