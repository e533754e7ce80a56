// The arithmetic of attention's products: on fp32 values, or on pairs of bf16 values if the machine
// has an instruction for these. Internal to lib/ops/cpu.
#pragma once

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#include <cstdint>

#include "base/dtype.h"
#include "ops/cpu/attention/tile.h"
#ifdef __AMX_BF16__
#include "ops/cpu/vector/tile_registers.h"
#endif

namespace trainctl {

/// A Dot defines the 32-bit units of panels (`depth` consecutive values of the summed dim) and the
/// product of two panels, C (+)= A B. Rows of C are rounded up to row_step, columns to column_step.
/// A range of steps is widened to whole step_values, where one panel must be zero and the other
/// finite. first_row_of(column) is the first row needed in the columns that begin there;
/// steps_of(row) are the steps needed by row_step rows from `row` on. A Dot's Registers exist while
/// a thread multiplies.
struct FloatDot : VectorProducts<FloatDot, float> {
  static constexpr int depth = 1;
  static constexpr int step_values = 1;

  static Vector add_product(Vector sum, float a, const float* b) {
    return sum + a * *reinterpret_cast<const Vector*>(b);
  }
};

#ifdef __AVX512BF16__

/// Products of bf16 pairs accumulated in fp32 by VDPBF16PS, at twice the rate of fp32. A unit holds
/// two values, the earlier one in its lower half.
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

  /// to[i] = {x[2i], x[2i + 1]}, rounded; count must be a multiple of 32.
  static void pack_row(const float* x, std::int64_t count, std::uint32_t* to) {
    for (std::int64_t i = 0; i < count; i += 32) {
      const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_load_ps(x + i + 16), _mm512_load_ps(x + i));
      _mm512_store_si512(to + i / 2, (__m512i)both);
    }
  }

  /// to[i] = {x[i], y[i]}, rounded; count must be a multiple of 16.
  static void pack_row_pair(const float* x, const float* y, std::int64_t count, std::uint32_t* to) {
    const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (std::int64_t i = 0; i < count; i += 16) {
      const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_load_ps(y + i), _mm512_load_ps(x + i));
      _mm512_store_si512(to + i, _mm512_permutexvar_epi16(zip, (__m512i)both));
    }
  }
};

#endif

#ifdef __AMX_BF16__

/// Products of bf16 pairs in AMX tile registers: 32 x 32 sums at a time, 16 units of the summed dim
/// per step. Panels are as for VDPBF16PS.
struct TileDot : PairDot {
  using Registers = TileRegisters;
  static constexpr int row_step = 32;
  static constexpr int column_step = 32;
  static constexpr int step_values = 32;
  static constexpr std::int64_t max_transposed = 48;  // units per row if a_step is not 1

  template <SumStart start, class FirstRow, class Steps>
  static void product(std::int64_t rows, std::int64_t columns, const Panels<Unit>& panels,
                      const FirstRow& first_row_of, const Steps& steps_of) {
    for (std::int64_t row = 0; row < rows; row += row_step) {
      Panels<Unit> strip = panels;
      strip.a += row * panels.a_row;
      strip.c += row * panels.c_row;
      const auto [begin, end] = steps_of(row);
      Range steps{begin / lanes * lanes, (end + lanes - 1) / lanes * lanes};
      if (start == SumStart::scaled) scale(strip, panels.scale + row, columns);
      alignas(64) Unit rows_of_a[row_step * max_transposed];
      if (panels.a_step != 1) gather_rows(strip, steps, rows_of_a);
      for (std::int64_t column = 0; column < columns; column += column_step) {
        if (first_row_of(column) >= row + row_step) continue;
        Panels<Unit> tile = strip;
        tile.b += column;
        tile.c += column;
        multiply(tile, steps, start == SumStart::zero);
      }
    }
  }

 private:
  static constexpr std::int64_t lanes = 16;

  static void scale(const Panels<Unit>& strip, const float* factors, std::int64_t columns) {
    for (std::int64_t row = 0; row < row_step; ++row) {
      for (std::int64_t at = 0; at < columns; at += vector_lanes) {
        *reinterpret_cast<Vector*>(strip.c + row * strip.c_row + at) *= factors[row];
      }
    }
  }

  /// Transposes the rows of a from a panel with contiguous steps; `strip` then refers to these.
  static void gather_rows(Panels<Unit>& strip, Range& steps, Unit* to) {
    const std::int64_t width = steps.end - steps.begin;
    for (std::int64_t row = 0; row < row_step; row += lanes) {
      for (std::int64_t step = 0; step < width; step += lanes) {
        Square<Unit> square;
        const Unit* from = strip.a + (steps.begin + step) * strip.a_step + row;
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i) {
          square.rows[i] = *reinterpret_cast<const Square<Unit>::Units*>(from + i * strip.a_step);
        }
        square.transpose();
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i) {
          *reinterpret_cast<Square<Unit>::Units*>(to + (row + i) * max_transposed + step) =
              square.rows[i];
        }
      }
    }
    strip.a = to;
    strip.a_row = max_transposed;
    strip.a_step = 1;
    strip.b += steps.begin * strip.b_step;
    steps = {0, width};
  }

  static void multiply(const Panels<Unit>& tile, Range steps, bool starts) {
    const TileSums sums{tile.c, tile.c_row};
    sums.load(starts);
    for (std::int64_t step = steps.begin; step < steps.end; step += lanes) {
      const Unit* a = tile.a + step;
      const Unit* b = tile.b + step * tile.b_step;
      add_tile_product({a, a + lanes * tile.a_row, tile.a_row}, {b, b + lanes, tile.b_step});
    }
    sums.store();
  }
};

using Bf16Dot = TileDot;

#elif defined(__AVX512BF16__)

using Bf16Dot = PairDot;

#else

using Bf16Dot = FloatDot;

#endif

}  // namespace trainctl
