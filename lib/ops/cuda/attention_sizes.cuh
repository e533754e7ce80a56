// Sizes of heads that attention kernels are built for, the shared memory of their tiles, and the
// exponential of their elements.
#pragma once

#include <type_traits>

#include "base/philox.h"
#include "ops/cuda/attention_tiles.cuh"

namespace trainctl::cuda {

/// Calls function(std::integral_constant<int, dim>{}) with the least built size that holds a head.
template <class Function>
void with_head_size(std::int64_t head_dim, const Function& function) {
  if (head_dim <= 64) {
    function(std::integral_constant<int, 64>{});
  } else if (head_dim <= 128) {
    function(std::integral_constant<int, 128>{});
  } else {
    function(std::integral_constant<int, 256>{});
  }
}

/// Shared memory of `count` tiles, and of the room that add_product needs for fp32.
template <class T, int dim>
constexpr std::size_t tiles_bytes(int count) {
  constexpr int tile = tile_rows_of<T, dim>;
  const int room = sizeof(T) == 4 ? tile * tile_stride<T>(tile) : 0;
  return static_cast<std::size_t>(count * tile * tile_stride<T>(dim) + room) * sizeof(T);
}

/// What factors and logarithms are multiplied by before `exponential`.
template <class T>
inline constexpr float exponent_unit = sizeof(T) == 4 ? 1.0F : 1.44269504F;  // log2 e
/// e^(x / exponent_unit), as exact as products of T need it.
template <class T>
__device__ float exponential(float x) {
  return sizeof(T) == 4 ? expf(x) : exp2_fast(x);
}

/// Of each score of a thread, whether dropout keeps its probability: bit own * i + j for the key at
/// position key_position(i, j) and the query in row query_row(i, j).
template <class Scores, class Problem, class QueryRow, class KeyPosition>
__device__ std::uint32_t kept_by_dropout(const Problem& problem, const Philox& random, int head,
                                         const QueryRow& query_row,
                                         const KeyPosition& key_position) {
  static_assert(Scores::rows * Scores::own <= 32);
  std::uint32_t bits = 0;
#pragma unroll 1  // unrolled, it is most of a kernel
  for (int at = 0; at < Scores::rows * Scores::own; ++at) {
    const int i = at / Scores::own;
    const int j = at % Scores::own;
    const bool kept = problem.keeps(random, query_row(i, j), head, key_position(i, j));
    bits |= static_cast<std::uint32_t>(kept) << at;
  }
  return bits;
}

}  // namespace trainctl::cuda
