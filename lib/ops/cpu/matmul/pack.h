// Packing of an operand from memory into strips of words, in the order in which tiles read them. A
// word is 32 bits of one row along the summed dim: one fp32 value, which may have 16 bits in
// memory, or two consecutive bf16 values. A strip has up to Words::lanes rows. For each step along
// that dim it has one word per row, zero for missing rows. Steps are padded with zeros to a
// multiple of Words::step_words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace trainctl {

/// One operand in memory, as lanes (rows of a or columns of b) along the summed dim.
struct PackSource {
  const std::byte* data;
  std::int64_t lanes, depth;    // depth: values along the summed dim
  std::int64_t memory_columns;  // row length of the matrix in memory
  bool depth_is_inner;          // consecutive values in memory follow the summed dim
};

/// The range to pack: strips [first, last) of `per_strip` lanes each, and values [begin, end) along
/// depth.
struct PackRange {
  std::int64_t first, last, per_strip;
  std::int64_t begin, end;
};

constexpr std::int64_t lanes_of(const PackSource& source, const PackRange& range,
                                std::int64_t strip) {
  return std::clamp<std::int64_t>(source.lanes - strip * range.per_strip, 0, range.per_strip);
}

/// The number of words for `values` values of the summed dim, with padding.
template <class Words>
constexpr std::int64_t words_for(std::int64_t values) {
  constexpr std::int64_t step = Words::values * Words::step_words;
  return (values + step - 1) / step * Words::step_words;
}

/// A square block of words: one row, and one step, per lane.
template <class Words>
using WordBlock = typename Words::Vector[Words::lanes];

/// Loads the rows of a block, from byte `at` of each row, if memory is contiguous along depth.
template <class Words>
void load_rows(const PackSource& source, const PackRange& range, std::int64_t strip,
               std::int64_t at, WordBlock<Words>& block) {
  constexpr std::int64_t value_bytes = Words::value_bytes;
  const std::int64_t lanes = lanes_of(source, range, strip);
  const std::int64_t row_bytes = source.memory_columns * value_bytes;
  const std::byte* from = source.data + strip * range.per_strip * row_bytes + at;
  for (std::int64_t lane = 0; lane < Words::lanes; ++lane) {
    // Prefetches the next strip's rows, which are too short for the hardware prefetcher.
    __builtin_prefetch(from + (lane + range.per_strip) * row_bytes);
    block[lane] = lane < lanes ? Words::along(from + lane * row_bytes, range.end * value_bytes - at)
                               : Words::no_words();
  }
}

/// Packs a strip if memory is contiguous along depth: reads square blocks by rows, transposes them.
template <class Words>
void pack_inner(const PackSource& source, const PackRange& range, std::int64_t strip,
                std::uint32_t* to) {
  constexpr std::int64_t edge = Words::lanes;
  constexpr std::int64_t block_bytes = edge * Words::values * Words::value_bytes;
  std::int64_t left = words_for<Words>(range.end - range.begin);
  std::int64_t at = range.begin * Words::value_bytes;
  for (; left > 0; left -= edge, at += block_bytes, to += edge * edge) {
    WordBlock<Words> block;
    load_rows<Words>(source, range, strip, at, block);
    Words::transpose(block);
    for (std::int64_t word = 0; word < std::min(edge, left); ++word) {
      Words::store_words(to + word * edge, block[word]);
    }
  }
}

/// Loads one step of a strip if memory is contiguous along lanes.
template <class Words>
typename Words::Vector load_step(const PackSource& source, const PackRange& range,
                                 std::int64_t strip, std::int64_t word) {
  constexpr std::int64_t value_bytes = Words::value_bytes;
  constexpr std::int64_t prefetch_rows = 16;
  const std::int64_t row_bytes = source.memory_columns * value_bytes;
  const std::int64_t depth = range.begin + word * Words::values;
  if (depth >= range.end) return Words::no_words();
  const std::byte* from = source.data + depth * row_bytes + strip * range.per_strip * value_bytes;
  for (std::int64_t next = 0; next < Words::values; ++next) {
    __builtin_prefetch(from + (prefetch_rows + next) * row_bytes);
  }
  return Words::across(from, row_bytes, depth + 1 < range.end,
                       Words::mask(lanes_of(source, range, strip)));
}

/// Packs strips if memory is contiguous along lanes: distributes each row of memory over `group`
/// strips at a time, so that reads are contiguous.
template <class Words>
void pack_outer(const PackSource& source, const PackRange& range, std::int64_t words,
                std::uint32_t* to) {
  constexpr std::int64_t group = 16;
  for (std::int64_t first = range.first; first < range.last; first += group) {
    const std::int64_t last = std::min(first + group, range.last);
    for (std::int64_t word = 0; word < words; ++word) {
      for (std::int64_t strip = first; strip < last; ++strip) {
        Words::store_words(to + ((strip - range.first) * words + word) * Words::lanes,
                           load_step<Words>(source, range, strip, word));
      }
    }
  }
}

/// Packs the range into consecutive strips of words_for(end - begin) x lanes words each.
template <class Words>
void pack_strips(const PackSource& source, const PackRange& range, std::uint32_t* to) {
  const std::int64_t words = words_for<Words>(range.end - range.begin);
  if (!source.depth_is_inner) {
    pack_outer<Words>(source, range, words, to);
    return;
  }
  for (std::int64_t strip = range.first; strip < range.last; ++strip) {
    pack_inner<Words>(source, range, strip, to + (strip - range.first) * words * Words::lanes);
  }
}

}  // namespace trainctl
