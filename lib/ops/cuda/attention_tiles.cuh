// Products of tiles for attention: with tensor cores for 16-bit elements, with fused multiply-adds
// for fp32. Tiles are row-major in shared memory. Results are in registers, where a row belongs to
// a few neighbouring lanes of one warp.
#pragma once

#include <type_traits>

#include "base/philox.h"
#include "ops/cuda/device_math.cuh"

namespace trainctl::cuda {

/// Rows of a tile of tokens; `dim` is the padded size of a head. A block has two threads per row.
template <class T, int dim>
inline constexpr int tile_rows_of = sizeof(T) == 4 && dim > 128 ? 32 : 64;
/// The distance between rows of a tile, in elements: padded by 16 bytes to avoid bank conflicts.
template <class T>
constexpr int tile_stride(int columns) {
  return columns + vector_width<T>;
}

/// An fp32 matrix [tile rows, columns] distributed over a block: `rows` x `own` per thread.
template <class T, int columns>
struct Fragment {
  static constexpr bool halves = sizeof(T) == 2;
  static constexpr int rows = halves ? 2 : 4;
  static constexpr int lanes = halves ? 4 : 8;
  static constexpr int own = columns / lanes;
  float c[columns / 8][4] = {};

  __device__ float& at(int i, int j) { return halves ? c[j / 2][2 * i + j % 2] : c[j][i]; }
  __device__ float at(int i, int j) const { return halves ? c[j / 2][2 * i + j % 2] : c[j][i]; }
  __device__ static int row(int i) {
    const int thread = static_cast<int>(threadIdx.x);
    return halves ? thread / 32 * 16 + thread % 32 / 4 + 8 * i : thread / 8 * 4 + i;
  }
  __device__ static int column(int j) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    return halves ? j / 2 * 8 + lane % 4 * 2 + j % 2 : j * 8 + lane % 8;
  }
  /// The maximum, and below the sum, of `value` over the lanes that share a row.
  __device__ static float row_max(float value) {
#pragma unroll
    for (int offset = 1; offset < lanes; offset *= 2) {
      value = fmaxf(value, __shfl_xor_sync(whole_warp, value, offset));
    }
    return value;
  }
  __device__ static float row_sum(float value) {
#pragma unroll
    for (int offset = 1; offset < lanes; offset *= 2) {
      value += __shfl_xor_sync(whole_warp, value, offset);
    }
    return value;
  }
};

/// The product a b^T, where a and b are [tile, dim] with rows `stride` apart.
template <class T, int tile, int dim>
__device__ Fragment<T, tile> multiply_rows(const T* a, const T* b) {
  constexpr int stride = tile_stride<T>(dim);
  Fragment<T, tile> result;
  if constexpr (sizeof(T) == 2) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    const T* a_row = a + (warp * 16 + lane % 16) * stride + lane / 16 * 8;
    const T* b_row = b + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < dim; k += 16) {
      std::uint32_t left[4];
      load_matrices(left, a_row + k);
#pragma unroll
      for (int n = 0; n < tile; n += 16) {
        std::uint32_t right[4];
        load_matrices(right, b_row + n * stride + k);
        multiply_fragments<T>(result.c[n / 8], left, {right[0], right[1]});
        multiply_fragments<T>(result.c[n / 8 + 1], left, {right[2], right[3]});
      }
    }
  } else {
    for (int k = 0; k < dim; k += 4) {
      float left[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) load<4>(a + result.row(i) * stride + k, left[i]);
#pragma unroll
      for (int j = 0; j < tile / 8; ++j) {
        float right[4];
        load<4>(b + result.column(j) * stride + k, right);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int l = 0; l < 4; ++l) result.at(i, j) += left[i][l] * right[l];
        }
      }
    }
  }
  return result;
}

/// sum += p b, where b is [tile, columns] with rows `stride` apart and p is rounded to T. `room` is
/// shared memory [tile, tile_stride(tile)] in which fp32 products store p.
template <class T, int tile, int columns>
__device__ void add_product(Fragment<T, columns>& sum, const Fragment<T, tile>& p, const T* b,
                            int stride, T* room) {
  if constexpr (sizeof(T) == 2) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const T* b_row = b + lane % 16 * stride + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < tile; k += 16) {
      const auto& low = p.c[k / 8];
      const auto& high = p.c[k / 8 + 1];
      const std::uint32_t left[4] = {pack<T>(low[0], low[1]), pack<T>(low[2], low[3]),
                                     pack<T>(high[0], high[1]), pack<T>(high[2], high[3])};
#pragma unroll
      for (int n = 0; n < columns; n += 16) {
        std::uint32_t right[4];
        load_matrices_transposed(right, b_row + k * stride + n);
        multiply_fragments<T>(sum.c[n / 8], left, {right[0], right[1]});
        multiply_fragments<T>(sum.c[n / 8 + 1], left, {right[2], right[3]});
      }
    }
  } else {
    constexpr int room_stride = tile_stride<T>(tile);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < tile / 8; ++j) room[p.row(i) * room_stride + p.column(j)] = p.at(i, j);
    }
    __syncwarp();  // each row is written and read by a single warp
    for (int k = 0; k < tile; ++k) {
#pragma unroll
      for (int j = 0; j < columns / 8; ++j) {
        const float right = b[k * stride + sum.column(j)];
#pragma unroll
        for (int i = 0; i < 4; ++i) sum.at(i, j) += room[sum.row(i) * room_stride + k] * right;
      }
    }
    __syncwarp();
  }
}

// Head sizes for which attention kernels are built, the shared memory of their tiles, and their
// exponential.

/// Calls function(std::integral_constant<int, dim>{}) with the smallest built size for head_dim.
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

/// Bytes of shared memory for `count` tiles, and for add_product's `room` in fp32.
template <class T, int dim>
constexpr std::size_t tiles_bytes(int count) {
  constexpr int tile = tile_rows_of<T, dim>;
  const int room = sizeof(T) == 4 ? tile * tile_stride<T>(tile) : 0;
  return static_cast<std::size_t>(count * tile * tile_stride<T>(dim) + room) * sizeof(T);
}

/// Exponents are multiplied by this unit before exponential().
template <class T>
inline constexpr float exponent_unit = sizeof(T) == 4 ? 1.0F : 1.44269504F;  // log2 e
/// e^(x / exponent_unit), with the accuracy that products of T need.
template <class T>
__device__ float exponential(float x) {
  return sizeof(T) == 4 ? expf(x) : exp2_fast(x);
}

/// Bits that say which scores of a thread dropout keeps: bit own * i + j is for the key at position
/// key_position(i, j) and the query in row query_row(i, j).
template <class Scores, class Problem, class QueryRow, class KeyPosition>
__device__ std::uint32_t kept_by_dropout(const Problem& problem, const Philox& random, int head,
                                         const QueryRow& query_row,
                                         const KeyPosition& key_position) {
  static_assert(Scores::rows * Scores::own <= 32);
  std::uint32_t bits = 0;
#pragma unroll 1  // unrolled, this loop would be most of the kernel
  for (int at = 0; at < Scores::rows * Scores::own; ++at) {
    const int i = at / Scores::own;
    const int j = at % Scores::own;
    const bool kept = problem.keeps(random, query_row(i, j), head, key_position(i, j));
    bits |= static_cast<std::uint32_t>(kept) << at;
  }
  return bits;
}

}  // namespace trainctl::cuda
