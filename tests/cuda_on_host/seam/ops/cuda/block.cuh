// lib/ops/cuda/block.cuh for threads that are fibers of the host: the same declarations, and what
// the compiler for devices knows by itself. Found before it by sources of the CUDA module on the
// host.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "base/dtype.h"
#include "block.h"
#include "launch.h"

#define __launch_bounds__(...)

using std::isfinite;
using std::isinf;
using std::max;
using std::min;

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  cuda_on_host::meet_block(where);
}

inline void __syncwarp(std::uint32_t mask = 0xffffffffU,
                       std::source_location where = std::source_location::current()) {
  cuda_on_host::meet_warp(
      mask, &mask, [](void* const(&)[32]) {}, where);
}

namespace cuda_on_host {

/// A lane's operand of a shuffle: the value, and the lane whose value it gets, or itself.
template <class T>
struct Shuffle {
  T value;
  int from;
};

template <class T>
T shuffle(std::uint32_t mask, T value, int from, const std::source_location& where) {
  Shuffle<T> mine{value, from};
  meet_warp(
      mask, &mine,
      [](void* const(&lanes)[32]) {
        T values[32];
        for (int i = 0; i < 32; ++i) {
          if (lanes[i] != nullptr) values[i] = static_cast<Shuffle<T>*>(lanes[i])->value;
        }
        for (int i = 0; i < 32; ++i) {
          if (lanes[i] == nullptr) continue;
          auto& lane = *static_cast<Shuffle<T>*>(lanes[i]);
          if (lanes[lane.from] == nullptr) fault("a shuffle reads a lane that takes no part");
          lane.value = values[lane.from];
        }
      },
      where);
  return mine.value;
}

inline int lane() { return thread_number() % 32; }

}  // namespace cuda_on_host

template <class T>
T __shfl_sync(std::uint32_t mask, T value, int from, int width = 32,
              std::source_location where = std::source_location::current()) {
  const int lane = cuda_on_host::lane();
  return cuda_on_host::shuffle(mask, value, lane / width * width + (from & (width - 1)), where);
}

template <class T>
T __shfl_xor_sync(std::uint32_t mask, T value, int bits, int width = 32,
                  std::source_location where = std::source_location::current()) {
  const int lane = cuda_on_host::lane();
  const int from = lane ^ bits;
  // A lane of a later group gives its own.
  const int reached = from / width > lane / width ? lane : from;
  return cuda_on_host::shuffle(mask, value, reached, where);
}

template <class T>
T __shfl_up_sync(std::uint32_t mask, T value, unsigned distance, int width = 32,
                 std::source_location where = std::source_location::current()) {
  const int lane = cuda_on_host::lane();
  const int from = lane - static_cast<int>(distance);
  return cuda_on_host::shuffle(mask, value, from < lane / width * width ? lane : from, where);
}

inline unsigned __ballot_sync(std::uint32_t mask, int predicate,
                              std::source_location where = std::source_location::current()) {
  struct Vote {
    bool holds;
    unsigned result;
  } mine{predicate != 0, 0};
  cuda_on_host::meet_warp(
      mask, &mine,
      [](void* const(&lanes)[32]) {
        unsigned result = 0;
        for (int i = 0; i < 32; ++i) {
          if (lanes[i] != nullptr && static_cast<Vote*>(lanes[i])->holds) result |= 1U << i;
        }
        for (void* lane : lanes) {
          if (lane != nullptr) static_cast<Vote*>(lane)->result = result;
        }
      },
      where);
  return mine.result;
}

// Blocks and threads take turns, so that what they change is theirs until they meet.
template <class T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}

template <class T>
T atomicMax(T* to, T value) {
  const T before = *to;
  if (before < value) *to = value;
  return before;
}

inline void __threadfence() {}

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = std::sin(x * 3.14159265358979323846);
  *cosine = std::cos(x * 3.14159265358979323846);
}
template <class T>
T __ldg(const T* from) {
  return *from;
}

namespace trainctl::cuda {

struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;
};

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const Grid& grid, cudaStream_t stream, const Args&... args) {
  cuda_on_host::enqueue(
      {[=, ... values = static_cast<Params>(args)] { kernel(values...); },
       cuda_on_host::name_of(__PRETTY_FUNCTION__, reinterpret_cast<const void*>(kernel)),
       grid.blocks, grid.threads, grid.shared_bytes},
      stream);
}

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(cuda_on_host::dynamic_memory());
}

template <class Use, class T, int count>
T* static_shared() {
  static const char key = 0;
  return static_cast<T*>(cuda_on_host::static_memory(&key, sizeof(T) * count));
}

template <class T>
T* global_pointer(T* pointer) {
  return pointer;
}

/// The arguments of a lane of a warp for a product of fragments.
struct Fragments {
  float* c;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

/// Element `half` of a register with two.
template <class T>
float element_of(std::uint32_t pair, int half) {
  return to_float(T{static_cast<std::uint16_t>(pair >> (16 * half))});
}

/// Not watched for alignment and bounds, which no operand can change: its loops become vectors.
template <class T>
[[gnu::no_sanitize("alignment", "bounds")]] void join_fragments(void* const (&lanes)[32]) {
  std::uint32_t a_pairs[16][8];
  std::uint32_t b_pairs[8][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& mine = *static_cast<const Fragments*>(lanes[lane]);
    const int row = lane / 4;
    const int pair = lane % 4;
    for (int part = 0; part < 4; ++part) {
      a_pairs[row + part % 2 * 8][pair + part / 2 * 4] = mine.a[part];
    }
    for (int part = 0; part < 2; ++part) b_pairs[pair + part * 4][row] = mine.b[part];
  }
  float a[16][16];
  float b[16][8];
  for (int row = 0; row < 16; ++row) {
    for (int i = 0; i < 16; ++i) a[row][i] = element_of<T>(a_pairs[row][i / 2], i % 2);
  }
  for (int i = 0; i < 16; ++i) {
    for (int column = 0; column < 8; ++column) {
      b[i][column] = element_of<T>(b_pairs[i / 2][column], i % 2);
    }
  }
  for (int row = 0; row < 16; ++row) {
    float sum[8] = {};
    for (int i = 0; i < 16; ++i) {
#pragma omp simd
      for (int column = 0; column < 8; ++column) sum[column] += a[row][i] * b[i][column];
    }
    for (int column = 0; column < 8; ++column) {
      const int lane = row % 8 * 4 + column / 2;
      static_cast<const Fragments*>(lanes[lane])->c[row / 8 * 2 + column % 2] += sum[column];
    }
  }
}

template <class T>
void multiply_fragments(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                        std::source_location where = std::source_location::current()) {
  Fragments mine{c, a, b};
  cuda_on_host::meet_warp(0xffffffffU, &mine, join_fragments<T>, where);
}

/// The arguments of a lane of a warp for a load of matrices.
struct MatrixRow {
  std::uint32_t* to;
  const std::uint16_t* row;
};

template <bool transposed>
void join_matrices(void* const (&lanes)[32]) {
  const auto row_of = [&](int lane) { return static_cast<const MatrixRow*>(lanes[lane])->row; };
  for (int lane = 0; lane < 32; ++lane) {
    if (reinterpret_cast<std::uintptr_t>(row_of(lane)) % 16 != 0) {
      cuda_on_host::fault("a row of load_matrices is not aligned to 16 bytes");
    }
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::uint32_t pair = 0;
      for (int half = 0; half < 2; ++half) {
        const int row = transposed ? lane % 4 * 2 + half : lane / 4;
        const int column = transposed ? lane / 4 : lane % 4 * 2 + half;
        pair |= static_cast<std::uint32_t>(row_of(8 * matrix + row)[column]) << (16 * half);
      }
      static_cast<const MatrixRow*>(lanes[lane])->to[matrix] = pair;
    }
  }
}

inline void load_matrices(std::uint32_t (&to)[4], const void* row,
                          std::source_location where = std::source_location::current()) {
  MatrixRow mine{to, static_cast<const std::uint16_t*>(row)};
  cuda_on_host::meet_warp(0xffffffffU, &mine, join_matrices<false>, where);
}

inline void load_matrices_transposed(std::uint32_t (&to)[4], const void* row,
                                     std::source_location where = std::source_location::current()) {
  MatrixRow mine{to, static_cast<const std::uint16_t*>(row)};
  cuda_on_host::meet_warp(0xffffffffU, &mine, join_matrices<true>, where);
}

inline void start_copy(void* shared, const void* global, bool present) {
  const auto bits = reinterpret_cast<std::uintptr_t>(shared) |
                    (present ? reinterpret_cast<std::uintptr_t>(global) : 0);
  if (bits % 16 != 0) cuda_on_host::fault("a copy is not aligned to 16 bytes");
  cuda_on_host::start_copy(shared, present ? global : nullptr, 16);
}
inline void commit_copies() { cuda_on_host::commit_copies(); }
template <int pending>
void wait_for_copies() {
  cuda_on_host::wait_for_copies(pending);
}

}  // namespace trainctl::cuda
