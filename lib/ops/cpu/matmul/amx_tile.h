// A tile of c on CPUs with AMX: 32 x 32 sums in four tile registers of 16 rows of 64 bytes; two
// more hold 16 x 32 values of a each, two 32 x 16 values of b (Intel 64 and IA-32 Architectures
// Software Developer's Manual, volume 1, chapter 18, and TDPBF16PS).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/matmul/words_avx512.h"

namespace trainctl {

/// Words as packed for tile registers: whole registers.
struct TileWords : Bf16Pairs {
  static constexpr std::int64_t step_words = 16;
};

/// The two strips of each operand of a tile, `words` steps each; a as pack_blocks leaves it, b as
/// pack_strips does. For each register of words that it multiplies, the tile asks for four lines of
/// cache from `later` on.
struct TileOperands {
  const std::uint32_t *a, *b, *later;
  std::int64_t words;
};

/// sums[32, 32] = a b, or += where it does not start; rows of sums lie `stride` floats apart.
inline void multiply_tile(const TileOperands& tile, bool starts, float* sums, std::int64_t stride) {
  constexpr std::int64_t lanes = TileWords::lanes;
  constexpr std::int64_t row_bytes = 64;
  const std::int64_t sum_bytes = stride * 4;
  float* lower = sums + lanes * stride;
  // The compiler does not know that tile loads read what packing wrote.
  __asm__ volatile("" ::: "memory");
  if (starts) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, sum_bytes);
    _tile_loadd(1, sums + lanes, sum_bytes);
    _tile_loadd(2, lower, sum_bytes);
    _tile_loadd(3, lower + lanes, sum_bytes);
  }
  const std::uint32_t* later = tile.later;
  for (std::int64_t at = 0; at < tile.words * lanes; at += lanes * lanes) {
    for (int line = 0; line < 4; ++line, later += lanes) __builtin_prefetch(later, 0, 2);
    _tile_loadd(4, tile.a + at, row_bytes);
    _tile_loadd(6, tile.b + at, row_bytes);
    _tile_loadd(7, tile.b + tile.words * lanes + at, row_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, tile.a + tile.words * lanes + at, row_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, sum_bytes);
  _tile_stored(1, sums + lanes, sum_bytes);
  _tile_stored(2, lower, sum_bytes);
  _tile_stored(3, lower + lanes, sum_bytes);
}

}  // namespace trainctl
