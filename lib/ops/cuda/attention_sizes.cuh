// Sizes of heads that attention kernels are built for, the shared memory of their tiles, and the
// exponential of their elements.
#pragma once

#include <type_traits>

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

/// e^x, as exact as products of T need it.
template <class T>
__device__ float exponential(float x) {
  return sizeof(T) == 4 ? expf(x) : exp2_fast(x * 1.44269504F);
}

}  // namespace trainctl::cuda
