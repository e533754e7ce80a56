// Packing for tile registers, which are loaded with rows side by side.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/matmul/pack.h"

namespace trainctl {

/// One square block of a strip, each row with its words of neighbouring steps.
template <class Words>
void load_block(const PackSource& source, const PackRange& range, std::int64_t strip,
                std::int64_t word, WordBlock<Words>& block) {
  if (source.depth_is_inner) {
    const std::int64_t value = range.begin + word * Words::values;
    load_rows<Words>(source, range, strip, value * Words::value_bytes, block);
    return;
  }
  for (std::int64_t step = 0; step < Words::lanes; ++step) {
    block[step] = load_step<Words>(source, range, strip, word + step);
  }
  Words::transpose(block);
}

/// As pack_strips, but the words of a square block lie by rows, not by steps.
template <class Words>
void pack_blocks(const PackSource& source, const PackRange& range, std::uint32_t* to) {
  constexpr std::int64_t edge = Words::lanes;
  const std::int64_t words = words_for<Words>(range.end - range.begin);
  const std::int64_t group = source.depth_is_inner ? 1 : 16;  // of strips, read side by side
  for (std::int64_t first = range.first; first < range.last; first += group) {
    for (std::int64_t word = 0; word < words; word += edge) {
      for (std::int64_t strip = first; strip < std::min(first + group, range.last); ++strip) {
        WordBlock<Words> block;
        load_block<Words>(source, range, strip, word, block);
        std::uint32_t* place = to + ((strip - range.first) * words + word) * edge;
        for (std::int64_t row = 0; row < edge; ++row) {
          Words::store_words(place + row * edge, block[row]);
        }
      }
    }
  }
}

}  // namespace trainctl
