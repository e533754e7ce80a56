// The division of attention's work into blocks, and the packing of blocks into panels. Internal to
// lib/ops/cpu.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/integers.h"
#include "base/parallel_for.h"
#include "base/scratch.h"
#include "device/tensor.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/cpu/attention/dot.h"
#include "ops/cpu/attention/tile.h"

namespace trainctl {

// The division of attention's work: block sizes, pieces of scratch memory, and the assignment of
// items to threads. Internal to lib/ops/cpu.

// Multiples of every Dot's steps.
inline constexpr std::int64_t block_queries = 96;
inline constexpr std::int64_t block_keys = 192;
template <class Dot>
constexpr bool fits_blocks =
    block_queries % Dot::row_step == 0 && block_keys % Dot::row_step == 0 &&
    block_keys % Dot::column_step == 0 && Dot::row_step % Dot::step_values == 0;
static_assert(fits_blocks<FloatDot> && fits_blocks<Bf16Dot>);
#ifdef __AMX_BF16__
static_assert(TileDot::max_transposed * TileDot::depth >= block_queries);
#endif

/// Allocates pieces of a thread's scratch memory, 64-byte aligned.
class Arena {
 public:
  explicit Arena(std::byte* begin) : begin_(begin), next_(begin) {}
  template <class T>
  T* take(std::int64_t count) {
    T* piece = reinterpret_cast<T*>(next_);
    next_ += round_up(count * static_cast<std::int64_t>(sizeof(T)), 64);
    return piece;
  }

  std::int64_t used() const { return next_ - begin_; }

 private:
  std::byte* begin_;
  std::byte* next_;
};

/// The multiplications of an operation: those of all scores, including masked ones, plus an equal
/// number for the sums of values.
inline std::int64_t products_of(const AttentionShape& shape) {
  return 2 * shape.sequences * shape.heads * shape.query_length * shape.key_length * shape.head_dim;
}

/// Calls body(item, arena) for each item in [0, count), on whichever thread is free; long items
/// should come first. An item's result must not depend on the thread. `products` is the number of
/// multiplications; each thread should get some microseconds of work.
template <class Body>
void run_items(const OpContext& context, std::int64_t count, std::int64_t products,
               const Body& body) {
  constexpr std::int64_t products_per_thread = 100'000;
  const std::int64_t worth =
      std::min(count, std::max<std::int64_t>(1, products / products_per_thread));
  std::atomic<std::int64_t> next{0};
  parallel_for(std::min<std::int64_t>(worth, thread_count()), 1,
               [&](std::int64_t thread, std::int64_t) {
                 for (std::int64_t item = next++; item < count; item = next++) {
                   body(item, Arena(context.scratch + thread * scratch_bytes_per_thread));
                 }
               });
}

// Copies blocks of q, k, v and d_out into the panels that attention's products read: units of
// Dot::depth consecutive values, zero where a panel exceeds its block. Internal to lib/ops/cpu.

/// The rows of one head in a [tokens, heads * head_dim] tensor.
template <class T>
struct HeadRows {
  const T* data;
  std::int64_t stride;
  std::int64_t count;
  std::int64_t head_dim;

  HeadRows(const Tensor& tensor, std::int64_t first_token, std::int64_t row_count,
           std::int64_t head, std::int64_t dim)
      : data(tensor.as<T>() + first_token * tensor.columns() + head * dim),
        stride(tensor.columns()),
        count(row_count),
        head_dim(dim) {}
  const T* row(std::int64_t index) const { return data + index * stride; }
};

/// The width of one head's panels, in values and in units.
template <class Dot>
struct HeadSize {
  std::int64_t dim;
  std::int64_t padded;  // values, a multiple of Dot::column_step
  std::int64_t units;   // dim / depth
  explicit HeadSize(std::int64_t head_dim)
      : dim(head_dim), padded(round_up(head_dim, Dot::column_step)), units(head_dim / Dot::depth) {}
  std::int64_t row_units() const { return padded / Dot::depth; }
};

/// Writes `count` units with the values of `row`, in order.
template <class Dot, class T>
void copy_units(const T* row, std::int64_t count, void* to) {
  if constexpr (sizeof(typename Dot::Unit) == Dot::depth * sizeof(T)) {
    std::memcpy(to, row, static_cast<std::size_t>(count) * sizeof(typename Dot::Unit));
  } else {
    for (std::int64_t i = 0; i < count; ++i) static_cast<float*>(to)[i] = to_float(row[i]);
  }
}

/// Packs rows unchanged: to[row][unit], [rows, size.row_units()], zero outside the block.
template <class Dot, class T>
void pack_rows(const HeadRows<T>& from, std::int64_t rows, const HeadSize<Dot>& size,
               typename Dot::Unit* to) {
  const std::int64_t width = size.row_units();
  for (std::int64_t row = 0; row < from.count; ++row, to += width) {
    copy_units<Dot>(from.row(row), size.units, to);
    std::fill(to + size.units, to + width, typename Dot::Unit{});
  }
  std::fill(to, to + (rows - from.count) * width, typename Dot::Unit{});
}

/// Packs the transpose: to[unit][row], [size.row_units(), block_keys], with zeros up to the next
/// multiple of column_step rows, and after the units.
template <class Dot, class T>
void pack_transposed(const HeadRows<T>& from, const HeadSize<Dot>& size, typename Dot::Unit* to) {
  const std::int64_t rows = round_up(from.count, Dot::column_step);
  std::fill(to + size.units * block_keys, to + size.row_units() * block_keys, typename Dot::Unit{});
  for (std::int64_t row = 0; row < rows; row += vector_lanes) {
    const std::int64_t height = std::clamp<std::int64_t>(from.count - row, 0, vector_lanes);
    for (std::int64_t unit = 0; unit < size.units; unit += vector_lanes) {
      const std::int64_t width = std::min<std::int64_t>(vector_lanes, size.units - unit);
      Square<typename Dot::Unit> square;
      typename Dot::Unit* to_square = to + unit * block_keys + row;
      if (height == vector_lanes && width == vector_lanes) {
#pragma GCC unroll 16
        for (int i = 0; i < vector_lanes; ++i) {
          copy_units<Dot>(from.row(row + i) + unit * Dot::depth, vector_lanes, &square.rows[i]);
        }
        square.transpose();
#pragma GCC unroll 16
        for (int i = 0; i < vector_lanes; ++i) {
          std::memcpy(to_square + i * block_keys, &square.rows[i], sizeof square.rows[i]);
        }
      } else {
        square = {};
        for (std::int64_t i = 0; i < height; ++i) {
          copy_units<Dot>(from.row(row + i) + unit * Dot::depth, width, &square.rows[i]);
        }
        square.transpose();
        for (std::int64_t i = 0; i < width; ++i) {
          std::memcpy(to_square + i * block_keys, &square.rows[i], sizeof square.rows[i]);
        }
      }
    }
  }
}

/// Packs units that hold consecutive rows of a column: to[row / depth][column], [rows / depth,
/// size.padded], zero outside the block. `rows` must be a multiple of depth.
template <class Dot, class T>
void pack_row_groups(const HeadRows<T>& from, std::int64_t rows, const HeadSize<Dot>& size,
                     typename Dot::Unit* to) {
  if constexpr (Dot::depth == 1) {
    pack_rows(from, rows, size, to);
  } else {
    for (std::int64_t row = 0; row < rows; row += 2, to += size.padded) {
      std::int64_t column = 0;
      if (row + 1 < from.count) {
        for (; column < size.dim; ++column) {
          to[column] = Dot::unit(from.row(row)[column], from.row(row + 1)[column]);
        }
      } else if (row < from.count) {
        for (; column < size.dim; ++column) to[column] = Dot::unit(from.row(row)[column], T{});
      }
      std::fill(to + column, to + size.padded, typename Dot::Unit{});
    }
  }
}

/// Calls visit.operator()<Dot, T>() with the arithmetic and the type for operands of `type`.
template <class Visit>
void with_dot(DType type, const Visit& visit) {
  if (type == DType::bf16) {
    visit.template operator()<Bf16Dot, bf16>();
  } else if constexpr (Bf16Dot::depth == 1) {  // otherwise the level is for bf16 only (level.h)
    if (type == DType::f16) {
      visit.template operator()<FloatDot, fp16>();
    } else {
      visit.template operator()<FloatDot, float>();
    }
  }
}

/// to[i] = from[i] * scale for i < head_dim, converted to T.
template <class T>
void write_row(const float* from, float scale, std::int64_t head_dim, T* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < head_dim; ++i) to[i] = from_float<T>(from[i] * scale);
}

}  // namespace trainctl
