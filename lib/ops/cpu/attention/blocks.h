// How attention's work is cut: the sizes of its blocks, pieces of scratch memory, and how items
// reach the threads. Internal to lib/ops/cpu.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/parallel_for.h"
#include "base/scratch.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/cpu/attention/dot.h"

namespace trainctl {

// Multiples of what every Dot takes at a time.
inline constexpr std::int64_t block_queries = 96;
inline constexpr std::int64_t block_keys = 192;
template <class Dot>
constexpr bool fits_blocks =
    block_queries % Dot::row_step == 0 && block_keys % Dot::row_step == 0 &&
    block_keys % Dot::column_step == 0 && Dot::row_step % Dot::step_values == 0;
static_assert(fits_blocks<FloatDot> && fits_blocks<Bf16Dot>);
#ifdef __AMX_BF16__
static_assert(TileDot::most_transposed * TileDot::depth >= block_queries);
#endif

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

/// Hands out pieces of a thread's scratch memory, 64-byte aligned.
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

/// Multiplications of all scores of an operation, masked ones too, and of as many sums of values.
inline std::int64_t products_of(const AttentionShape& shape) {
  return 2 * shape.sequences * shape.heads * shape.query_length * shape.key_length * shape.head_dim;
}

/// Calls body(item, arena) for each item in [0, count) on whichever thread is free; early items
/// should be the long ones. An item's result may not depend on the thread. `products`: what there
/// is to multiply, since a thread should have some microseconds of it.
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

}  // namespace trainctl
