// The transpose of a square of units in vector registers. Internal to lib/ops/cpu.
#pragma once

#include <cstddef>
#include <utility>

#include "ops/cpu/attention/tile.h"

namespace trainctl {

/// A row per vector; transpose() is log2(lanes) perfect shuffles.
template <class Unit>
struct Square {
  using Units __attribute__((vector_size(vector_lanes * sizeof(Unit)))) = Unit;
  Units rows[vector_lanes];

  /// One step of the perfect shuffle: row i is zipped with row i + lanes / 2.
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
