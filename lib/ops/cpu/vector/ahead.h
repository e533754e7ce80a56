// Fetching memory ahead of loops that compute much for each line of it. Internal to lib/ops/cpu.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/elements.h"

namespace trainctl {

/// Asks for `count` elements.
template <class T>
void fetch(const T* elements, std::int64_t count) {
  constexpr std::int64_t line = 64 / sizeof(T);
  for (std::int64_t at = 0; at < count; at += line) __builtin_prefetch(elements + at);
}

/// Calls body(begin, end) for blocks that cover the elements [first, last), while those of `arrays`
/// further on are on their way. Without that a loop with an exponential runs at a quarter of the
/// memory's rate on some processors: too few lines fit into its window of instructions.
template <class Body, class... T>
void for_blocks_ahead(std::int64_t first, std::int64_t last, const Body& body, T*... arrays) {
  constexpr std::int64_t block = 256;
  constexpr std::int64_t ahead = 3 * block;
  for (std::int64_t begin = first; begin < last; begin += block) {
    (fetch(arrays + begin + ahead, block), ...);
    body(begin, std::min(begin + block, last));
  }
}

/// The same on all threads, for the elements [0, count).
template <class Body, class... T>
void for_elements_ahead(std::int64_t count, const Body& body, T*... arrays) {
  for_elements(count, [&](std::int64_t begin, std::int64_t end) {
    for_blocks_ahead(begin, end, body, arrays...);
  });
}

}  // namespace trainctl
