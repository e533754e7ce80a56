// AMX tile registers: four hold 32 x 32 sums, two hold 16 x 32 values of a each, and two hold 32 x
// 16 values of b each (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1,
// chapter 18, and TDPBF16PS). Internal to lib/ops/cpu.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace trainctl {

struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t others[15] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
inline constexpr TileShapes whole_tiles{};

/// Configures the calling thread's tile registers to 16 rows of 64 bytes, while the object exists.
class TileRegisters {
 public:
  TileRegisters() { _tile_loadconfig(&whole_tiles); }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

/// 32 x 32 sums in memory, with rows `stride` floats apart.
struct TileSums {
  float* sums;
  std::int64_t stride;

  /// Loads the sums into registers, or zeroes these if `starts`.
  void load(bool starts) const {
    // Without this barrier, the compiler does not know that tile loads read memory.
    __asm__ volatile("" ::: "memory");
    if (starts) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      return;
    }
    _tile_loadd(0, sums, stride * 4);
    _tile_loadd(1, sums + 16, stride * 4);
    _tile_loadd(2, sums + 16 * stride, stride * 4);
    _tile_loadd(3, sums + 16 * stride + 16, stride * 4);
  }
  void store() const {
    _tile_stored(0, sums, stride * 4);
    _tile_stored(1, sums + 16, stride * 4);
    _tile_stored(2, sums + 16 * stride, stride * 4);
    _tile_stored(3, sums + 16 * stride + 16, stride * 4);
  }
};

/// The parts of an operand for two registers, with rows `row` words apart.
struct TilePair {
  const std::uint32_t *first, *second;
  std::int64_t row;
};

/// Adds a b to the sums in registers, over 16 words of the summed dim. a has upper and lower rows;
/// b has left and right columns, with one row per word.
inline void add_tile_product(const TilePair& a, const TilePair& b) {
  _tile_loadd(4, a.first, a.row * 4);
  _tile_loadd(6, b.first, b.row * 4);
  _tile_loadd(7, b.second, b.row * 4);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, a.second, a.row * 4);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

}  // namespace trainctl
