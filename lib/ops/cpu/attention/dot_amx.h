// Products of bf16 pairs in the tile registers of AMX: 32 x 32 sums at a time, 16 units of the
// summed dim in a step. Panels hold units as for VDPBF16PS. Internal to dot.h.
#pragma once

#include <cstdint>

#include "ops/cpu/attention/dot_avx512bf16.h"
#include "ops/cpu/attention/transpose.h"
#include "ops/cpu/vector/tile_registers.h"

namespace trainctl {

struct TileDot : PairDot {
  using Registers = TileRegisters;
  static constexpr int row_step = 32;
  static constexpr int column_step = 32;
  static constexpr int step_values = 32;
  static constexpr std::int64_t most_transposed = 48;  // units of a row where a_step is not 1

  template <Start start, class FirstRow, class Steps>
  static void product(std::int64_t rows, std::int64_t columns, const Panels<Unit>& panels,
                      const FirstRow& first_row_of, const Steps& steps_of) {
    for (std::int64_t row = 0; row < rows; row += row_step) {
      Panels<Unit> strip = panels;
      strip.a += row * panels.a_row;
      strip.c += row * panels.c_row;
      const auto [begin, end] = steps_of(row);
      StepRange steps{begin / lanes * lanes, (end + lanes - 1) / lanes * lanes};
      if (start == Start::scaled) scale(strip, panels.scale + row, columns);
      alignas(64) Unit rows_of_a[row_step * most_transposed];
      if (panels.a_step != 1) gather_rows(strip, steps, rows_of_a);
      for (std::int64_t column = 0; column < columns; column += column_step) {
        if (first_row_of(column) >= row + row_step) continue;
        Panels<Unit> tile = strip;
        tile.b += column;
        tile.c += column;
        multiply(tile, steps, start == Start::zero);
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

  /// Rows of a from a panel that has its steps side by side; the panel becomes that of the rows.
  static void gather_rows(Panels<Unit>& strip, StepRange& steps, Unit* to) {
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
          *reinterpret_cast<Square<Unit>::Units*>(to + (row + i) * most_transposed + step) =
              square.rows[i];
        }
      }
    }
    strip.a = to;
    strip.a_row = most_transposed;
    strip.a_step = 1;
    strip.b += steps.begin * strip.b_step;
    steps = {0, width};
  }

  static void multiply(const Panels<Unit>& tile, StepRange steps, bool starts) {
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

}  // namespace trainctl
