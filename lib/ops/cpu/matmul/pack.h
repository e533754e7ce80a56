// Packing: an operand as it lies in memory into strips of words, in the order in which the tiles
// read them. A word is 32 bits of one row along the summed dim: one fp32 value, which may have 16
// bits in memory, or two neighbouring bf16 values. A strip holds up to Words::lanes rows: one word
// per row, missing rows zero, for each step along that dim.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

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

/// Memory runs along depth: square blocks of words are read by rows and written transposed.
template <class Words>
void pack_inner(const PackSource& source, const PackRange& range, std::int64_t strip,
                std::uint32_t* to) {
  constexpr std::int64_t edge = Words::lanes;
  constexpr std::int64_t value_bytes = Words::value_bytes;
  constexpr std::int64_t word_bytes = Words::values * value_bytes;
  const std::int64_t lanes = lanes_of(source, range, strip);
  const std::int64_t row_bytes = source.memory_columns * value_bytes;
  const std::byte* from = source.data + strip * range.per_strip * row_bytes;
  const std::int64_t end = range.end * value_bytes;
  for (std::int64_t at = range.begin * value_bytes; at < end; at += edge * word_bytes) {
    typename Words::Vector block[edge];
    for (std::int64_t lane = 0; lane < edge; ++lane) {
      // The next strip's rows: each row is too short a run for the hardware to see it coming.
      __builtin_prefetch(from + (lane + range.per_strip) * row_bytes + at);
      block[lane] =
          lane < lanes ? Words::along(from + lane * row_bytes + at, end - at) : Words::no_words();
    }
    Words::transpose(block);
    const std::int64_t words = std::min(edge, (end - at + word_bytes - 1) / word_bytes);
    for (std::int64_t word = 0; word < words; ++word) {
      Words::store_words(to + word * edge, block[word]);
    }
    to += edge * edge;
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
        const auto mask = Words::mask(lanes_of(source, range, strip));
        const std::int64_t offset = strip * range.per_strip * value_bytes;
        for (std::int64_t next = 0; next < Words::values; ++next) {
          __builtin_prefetch(ahead + next * row_bytes + offset);
        }
        Words::store_words(to + ((strip - range.first) * words + word) * Words::lanes,
                           Words::across(row + offset, row_bytes, has_next, mask));
      }
    }
  }
}

/// Writes the strips one after the other, each ceil((end - begin) / values) x lanes words.
template <class Words>
void pack_strips(const PackSource& source, const PackRange& range, std::uint32_t* to) {
  const std::int64_t words = (range.end - range.begin + Words::values - 1) / Words::values;
  if (!source.depth_is_inner) {
    pack_outer<Words>(source, range, words, to);
    return;
  }
  for (std::int64_t strip = range.first; strip < range.last; ++strip) {
    pack_inner<Words>(source, range, strip, to + (strip - range.first) * words * Words::lanes);
  }
}

}  // namespace trainctl
