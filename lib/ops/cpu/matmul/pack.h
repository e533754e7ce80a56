// Packing: an operand of matmul_tiles_avx512.cpp, as it lies in memory, into strips of words (see
// matmul_words.h) in the order in which the tiles read them.
#pragma once

#include <algorithm>

#include "ops/cpu/matmul/words.h"

namespace trainctl {

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

/// Memory runs along depth: 16 x 16 words are read by rows and written transposed.
template <class Words>
void pack_inner(const PackSource& source, const PackRange& range, std::int64_t strip,
                std::uint32_t* to) {
  constexpr std::int64_t value_bytes = Words::value_bytes;
  constexpr std::int64_t word_bytes = Words::values * value_bytes;
  const std::int64_t lanes = lanes_of(source, range, strip);
  const std::int64_t row_bytes = source.memory_columns * value_bytes;
  const std::byte* from = source.data + strip * range.per_strip * row_bytes;
  const std::int64_t end = range.end * value_bytes;
  for (std::int64_t at = range.begin * value_bytes; at < end; at += 16 * word_bytes) {
    __m512i block[16];
    for (std::int64_t lane = 0; lane < 16; ++lane) {
      // The next strip's rows: each row is too short a run for the hardware to see it coming.
      __builtin_prefetch(from + (lane + range.per_strip) * row_bytes + at);
      block[lane] = lane < lanes ? Words::along(from + lane * row_bytes + at, end - at)
                                 : _mm512_setzero_si512();
    }
    transpose_words(block);
    const std::int64_t words = std::min<std::int64_t>(16, (end - at + word_bytes - 1) / word_bytes);
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
  constexpr std::int64_t value_bytes = Words::value_bytes;
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
