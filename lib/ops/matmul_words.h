// What the register tiles of matmul_tiles_avx512.cpp work on. A word is 32 bits of one row along
// the summed dim: one fp32 value, or two neighbouring bf16 values. A strip holds up to 16 rows: 16
// words (one per row, missing rows zero) for each step along that dim.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "base/dtype.h"

namespace trainctl {

inline constexpr std::int64_t strip_lanes = 16;

struct FloatWords {
  static constexpr std::int64_t values = 1;

  static __m512 multiply_add(__m512i a, __m512i b, __m512 sum) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
  }
  /// The words of up to 16 lanes that lie side by side at `from`.
  static __m512i across(const std::byte* from, std::int64_t, bool, __mmask16 lanes) {
    return _mm512_maskz_loadu_epi32(lanes, from);
  }
};

struct Bf16Words {
  static constexpr std::int64_t values = 2;

  static __m512 multiply_add(__m512i a, __m512i b, __m512 sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
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

/// One operand in memory, as rows of lanes (rows of a or columns of b) along the summed dim.
struct PackSource {
  const std::byte* data;
  std::int64_t lanes, depth;    // depth: values along the summed dim
  std::int64_t memory_columns;  // row length of the matrix as it lies in memory
  bool depth_is_inner;          // neighbours in memory follow the summed dim
};

/// What to pack: strips [first, last) of `per_strip` lanes each, values [begin, end) along depth.
struct PackRange {
  std::int64_t first, last, per_strip;
  std::int64_t begin, end;
};

constexpr std::int64_t lanes_of(const PackSource& source, const PackRange& range,
                                std::int64_t strip) {
  return std::clamp<std::int64_t>(source.lanes - strip * range.per_strip, 0, range.per_strip);
}

constexpr __mmask64 low_bits(std::int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

/// Memory runs along depth: 16 x 16 words are read by rows and written transposed.
template <class Words>
void pack_inner(const PackSource& source, const PackRange& range, std::int64_t strip,
                std::uint32_t* to) {
  constexpr std::int64_t value_bytes = 4 / Words::values;
  const std::int64_t lanes = lanes_of(source, range, strip);
  const std::int64_t row_bytes = source.memory_columns * value_bytes;
  const std::byte* from = source.data + strip * range.per_strip * row_bytes;
  const std::int64_t end = range.end * value_bytes;
  for (std::int64_t at = range.begin * value_bytes; at < end; at += 64) {
    const __mmask64 mask = low_bits(end - at);
    __m512i block[16];
    for (std::int64_t lane = 0; lane < 16; ++lane) {
      // The next strip's rows: each row is too short a run for the hardware to see it coming.
      __builtin_prefetch(from + (lane + range.per_strip) * row_bytes + at);
      block[lane] = lane < lanes ? _mm512_maskz_loadu_epi8(mask, from + lane * row_bytes + at)
                                 : _mm512_setzero_si512();
    }
    transpose_words(block);
    const std::int64_t words = std::min<std::int64_t>(16, (end - at + 3) / 4);
    for (std::int64_t word = 0; word < words; ++word) {
      _mm512_store_si512(to + word * strip_lanes, block[word]);
    }
    to += 16 * strip_lanes;
  }
}

/// Memory runs along lanes: each row of memory is spread over the strips, `group` of them at a time
/// so that what is read lies together.
template <class Words>
void pack_outer(const PackSource& source, const PackRange& range, std::int64_t words,
                std::uint32_t* to) {
  constexpr std::int64_t value_bytes = 4 / Words::values;
  constexpr std::int64_t group = 16;
  constexpr std::int64_t prefetch_rows = 16;
  const std::int64_t row_bytes = source.memory_columns * value_bytes;
  for (std::int64_t first = range.first; first < range.last; first += group) {
    const std::int64_t last = std::min(first + group, range.last);
    for (std::int64_t word = 0; word < words; ++word) {
      const std::int64_t depth = range.begin + word * Words::values;
      const std::byte* row = source.data + depth * row_bytes;
      const std::byte* ahead = row + prefetch_rows * row_bytes;
      const bool has_next = depth + 1 < range.end;
      for (std::int64_t strip = first; strip < last; ++strip) {
        const auto mask = static_cast<__mmask16>(low_bits(lanes_of(source, range, strip)));
        const std::int64_t offset = strip * range.per_strip * value_bytes;
        for (std::int64_t next = 0; next < Words::values; ++next) {
          __builtin_prefetch(ahead + next * row_bytes + offset);
        }
        _mm512_store_si512(to + ((strip - range.first) * words + word) * strip_lanes,
                           Words::across(row + offset, row_bytes, has_next, mask));
      }
    }
  }
}

/// Writes the strips one after the other, each ceil((end - begin) / values) x 16 words.
template <class Words>
void pack_strips(const PackSource& source, const PackRange& range, std::uint32_t* to) {
  const std::int64_t words = (range.end - range.begin + Words::values - 1) / Words::values;
  if (!source.depth_is_inner) {
    pack_outer<Words>(source, range, words, to);
    return;
  }
  for (std::int64_t strip = range.first; strip < range.last; ++strip) {
    pack_inner<Words>(source, range, strip, to + (strip - range.first) * words * strip_lanes);
  }
}

}  // namespace trainctl
