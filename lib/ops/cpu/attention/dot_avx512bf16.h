// Products of bf16 pairs accumulated in fp32 by VDPBF16PS: twice the rate of fp32. A unit holds two
// values, the earlier one in its lower half. Internal to dot.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/dtype.h"
#include "ops/cpu/attention/tile.h"

namespace trainctl {

struct PairDot : VectorProducts<PairDot, std::uint32_t> {
  static constexpr int depth = 2;
  static constexpr int step_values = 2;

  static Vector add_product(Vector sum, std::uint32_t a, const std::uint32_t* b) {
    const __m512i broadcast = _mm512_set1_epi32(static_cast<int>(a));
    return _mm512_dpbf16_ps(sum, (__m512bh)broadcast, (__m512bh)_mm512_load_si512(b));
  }
  static std::uint32_t unit(bf16 earlier, bf16 later) {
    return earlier.bits | (static_cast<std::uint32_t>(later.bits) << 16);
  }

  /// to[i] = {x[2i], x[2i + 1]} rounded; count is a multiple of 32.
  static void pack_row(const float* x, std::int64_t count, std::uint32_t* to) {
    for (std::int64_t i = 0; i < count; i += 32) {
      const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_load_ps(x + i + 16), _mm512_load_ps(x + i));
      _mm512_store_si512(to + i / 2, (__m512i)both);
    }
  }

  /// to[i] = {x[i], y[i]} rounded; count is a multiple of 16.
  static void pack_row_pair(const float* x, const float* y, std::int64_t count, std::uint32_t* to) {
    const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (std::int64_t i = 0; i < count; i += 16) {
      const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_load_ps(y + i), _mm512_load_ps(x + i));
      _mm512_store_si512(to + i, _mm512_permutexvar_epi16(zip, (__m512i)both));
    }
  }
};

}  // namespace trainctl
