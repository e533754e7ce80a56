// A tile of c on CPUs with AMX, from packed strips. Internal to lib/ops/cpu.
#pragma once

#include <cstdint>

#include "ops/cpu/matmul/words_avx512.h"
#include "ops/cpu/vector/tile_registers.h"

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

/// sums[32, 32] = a b, or += where it does not start.
inline void multiply_tile(const TileOperands& tile, bool starts, const TileSums& sums) {
  constexpr std::int64_t lanes = TileWords::lanes;
  const std::int64_t strip = tile.words * lanes;
  const std::uint32_t* later = tile.later;
  sums.load(starts);
  for (std::int64_t at = 0; at < strip; at += lanes * lanes) {
    for (int line = 0; line < 4; ++line, later += lanes) __builtin_prefetch(later, 0, 2);
    add_tile_product({tile.a + at, tile.a + strip + at, lanes},
                     {tile.b + at, tile.b + strip + at, lanes});
  }
  sums.store();
}

}  // namespace trainctl
