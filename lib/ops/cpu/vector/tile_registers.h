// The tile registers of AMX. Internal to lib/ops/cpu.
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

/// Gives each of the calling thread's tile registers 16 rows of 64 bytes, for as long as it lives.
class TileRegisters {
 public:
  TileRegisters() { _tile_loadconfig(&whole_tiles); }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

}  // namespace trainctl
