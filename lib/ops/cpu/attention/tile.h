// The product of two small packed panels, C (+)= A B, one register tile of C at a time. Columns of
// B and C are in vectors; scalars of A are broadcast. A `Dot` (dot.h) defines the arithmetic of a
// step. Internal to lib/ops/cpu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include "device/tensor.h"

namespace trainctl {

// A tile fills most vector registers: 24 of 32, or 12 of 16.
#if defined(__AVX512F__)
inline constexpr int vector_lanes = 16;
inline constexpr int tile_vectors = 4;
#else
inline constexpr int vector_lanes = 8;
inline constexpr int tile_vectors = 2;
#endif
inline constexpr int tile_rows = 6;

using Vector __attribute__((vector_size(vector_lanes * sizeof(float)))) = float;

/// Operands of C[rows, columns] (+)= A[rows, steps] B[steps, columns]. Rows of B and C must be
/// aligned to vectors.
template <class Unit>
struct Panels {
  const Unit* a;
  std::int64_t a_row, a_step;  // between rows, and between steps
  const Unit* b;
  std::int64_t b_step;
  float* c;
  std::int64_t c_row;
  const float* scale = nullptr;  // per row of C, for SumStart::scaled
};

/// The use of C's former contents: none; added to; or scaled by row and then added to.
enum class SumStart { zero, keep, scaled };

template <class Dot, SumStart start, int vectors>
inline void tile_product(const Panels<typename Dot::Unit>& panels, Range steps) {
  Vector sum[tile_rows][vectors];
#pragma GCC unroll 8
  for (int row = 0; row < tile_rows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      const float* c = panels.c + row * panels.c_row + v * vector_lanes;
      if constexpr (start == SumStart::zero) {
        sum[row][v] = Vector{};
      } else if constexpr (start == SumStart::keep) {
        sum[row][v] = *reinterpret_cast<const Vector*>(c);
      } else {
        sum[row][v] = *reinterpret_cast<const Vector*>(c) * panels.scale[row];
      }
    }
  }
  const typename Dot::Unit* a = panels.a + steps.begin * panels.a_step;
  const typename Dot::Unit* b = panels.b + steps.begin * panels.b_step;
  for (std::int64_t step = steps.begin; step < steps.end; ++step) {
#pragma GCC unroll 8
    for (int row = 0; row < tile_rows; ++row) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        sum[row][v] = Dot::add_product(sum[row][v], a[row * panels.a_row], b + v * vector_lanes);
      }
    }
    a += panels.a_step;
    b += panels.b_step;
  }
#pragma GCC unroll 8
  for (int row = 0; row < tile_rows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      float* c = panels.c + row * panels.c_row + v * vector_lanes;
      *reinterpret_cast<Vector*>(c) = sum[row][v];
    }
  }
}

/// One column of tiles of C, `vectors` vectors wide: rows [first_row, rows) in steps of tile_rows.
/// steps_of(row) are the steps that the tile at `row` needs.
template <class Dot, SumStart start, int vectors, class Steps>
void column_product(Panels<typename Dot::Unit> panels, std::int64_t first_row, std::int64_t rows,
                    const Steps& steps_of) {
  panels.a += first_row * panels.a_row;
  panels.c += first_row * panels.c_row;
  for (std::int64_t row = first_row; row < rows; row += tile_rows) {
    if constexpr (start == SumStart::scaled)
      panels.scale += row == first_row ? first_row : tile_rows;
    tile_product<Dot, start, vectors>(panels, steps_of(row));
    panels.a += tile_rows * panels.a_row;
    panels.c += tile_rows * panels.c_row;
  }
}

/// C (+)= A B. `rows` is rounded up to tile_rows, `columns` to vector_lanes. first_row_of(column)
/// is the first row needed in the columns that begin there, rounded down to a tile.
template <class Dot, SumStart start, class FirstRow, class Steps>
void vector_product(std::int64_t rows, std::int64_t columns,
                    const Panels<typename Dot::Unit>& panels, const FirstRow& first_row_of,
                    const Steps& steps_of) {
  std::int64_t left = (columns + vector_lanes - 1) / vector_lanes;
  for (std::int64_t at = 0; left > 0; at += tile_vectors, left -= tile_vectors) {
    Panels<typename Dot::Unit> part = panels;
    part.b += at * vector_lanes;
    part.c += at * vector_lanes;
    const std::int64_t first = first_row_of(at * vector_lanes) / tile_rows * tile_rows;
    if (left >= tile_vectors) {
      column_product<Dot, start, tile_vectors>(part, first, rows, steps_of);
    } else if (left == 3) {
      column_product<Dot, start, 3>(part, first, rows, steps_of);
    } else if (left == 2) {
      column_product<Dot, start, 2>(part, first, rows, steps_of);
    } else {
      column_product<Dot, start, 1>(part, first, rows, steps_of);
    }
  }
}

/// The common part of all Dots (dot.h) that multiply in vector registers.
template <class Dot, class DotUnit>
struct VectorProducts {
  using Unit = DotUnit;
  using Registers = std::monostate;  // no setup is needed
  static constexpr int row_step = tile_rows;
  static constexpr int column_step = 16;

  template <SumStart start, class FirstRow, class Steps>
  static void product(std::int64_t rows, std::int64_t columns, const Panels<Unit>& panels,
                      const FirstRow& first_row_of, const Steps& steps_of) {
    vector_product<Dot, start>(rows, columns, panels, first_row_of, steps_of);
  }
};

// Transposes a square of units in vector registers. Internal to lib/ops/cpu.

/// A square with a row per vector. transpose() takes log2(lanes) perfect shuffles.
template <class Unit>
struct Square {
  using Units __attribute__((vector_size(vector_lanes * sizeof(Unit)))) = Unit;
  Units rows[vector_lanes];

  /// One step of the perfect shuffle: interleaves row i with row i + lanes / 2.
  template <std::size_t... lane>
  void zip(std::index_sequence<lane...>) {
    constexpr int half = vector_lanes / 2;
    Units zipped[vector_lanes];
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      zipped[2 * i] =
          __builtin_shufflevector(rows[i], rows[i + half], (lane / 2 + lane % 2 * vector_lanes)...);
      zipped[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + half],
                                                  (half + lane / 2 + lane % 2 * vector_lanes)...);
    }
#pragma GCC unroll 16
    for (int i = 0; i < vector_lanes; ++i) rows[i] = zipped[i];
  }

  void transpose() {
#pragma GCC unroll 4
    for (int width = 1; width < vector_lanes; width *= 2) {
      zip(std::make_index_sequence<vector_lanes>());
    }
  }
};

}  // namespace trainctl
