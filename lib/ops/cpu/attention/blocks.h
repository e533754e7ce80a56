// How attention's work is cut: blocks of queries of one head, blocks of keys, which keys a block
// sees, how operands are packed into panels, and how items reach the threads. Internal to
// attention_cpu.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/parallel_for.h"
#include "base/scratch.h"
#include "ops/attention.h"
#include "ops/cpu/attention/dot.h"

namespace trainctl {

// Both are multiples of tile_rows and of two vectors.
inline constexpr std::int64_t block_queries = 96;
inline constexpr std::int64_t block_keys = 192;

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

/// Calls body(item, arena) for each item in [0, count) on whichever thread is free; early items
/// should be the long ones. An item's result may not depend on the thread.
template <class Body>
void run_items(const OpContext& context, std::int64_t count, const Body& body) {
  std::atomic<std::int64_t> next{0};
  parallel_for(std::min<std::int64_t>(count, thread_count()), 1,
               [&](std::int64_t thread, std::int64_t) {
                 for (std::int64_t item = next++; item < count; item = next++) {
                   body(item, Arena(context.scratch + thread * scratch_bytes_per_thread));
                 }
               });
}

/// Up to block_queries consecutive queries of one head.
struct QueryBlock {
  std::int64_t sequence, head;
  std::int64_t first;  // row of the first query within its sequence
  std::int64_t count;
  std::int64_t position;          // of the first query among the keys
  const std::int32_t* first_key;  // [block_queries]: the first key each sees; null: key 0

  std::int64_t rows() const { return round_up(count, tile_rows); }
  /// Key after the last one that any query of the block sees.
  std::int64_t end_key() const { return position + count; }
  std::int64_t begin_key() const { return first_key == nullptr ? 0 : first_key[0]; }
};

/// The queries that share one KV head are cut into blocks, all heads of a range of queries before
/// the next range.
struct BlockList {
  const AttentionShape& shape;
  std::int64_t group() const { return shape.heads / shape.kv_heads; }
  std::int64_t size() const {
    return (shape.query_length + block_queries - 1) / block_queries * group();
  }
  QueryBlock block(std::int64_t sequence, std::int64_t kv_head, std::int64_t index) const {
    const std::int64_t first = index / group() * block_queries;
    return {sequence,
            kv_head * group() + index % group(),
            first,
            std::min(block_queries, shape.query_length - first),
            shape.query_offset + first,
            nullptr};
  }
};

/// Fills first_key for the block's rows from the documents of its sequence; the rows after the last
/// query get its value.
inline void find_first_keys(const std::int32_t* document, const QueryBlock& block,
                            std::int32_t* first_key) {
  std::int64_t first = block.position;
  while (first > 0 && document[first - 1] == document[block.position]) --first;
  for (std::int64_t row = 0; row < block_queries; ++row) {
    const std::int64_t key = block.position + row;
    if (row > 0 && row < block.count && document[key] != document[key - 1]) first = key;
    first_key[row] = static_cast<std::int32_t>(first);
  }
}

/// The part of a key block [begin, end) that a query block works on.
struct Overlap {
  std::int64_t key;       // first key of the key block
  std::int64_t columns;   // keys of it that the last query may see
  std::int64_t diagonal;  // row r sees columns below diagonal + r

  bool empty() const { return columns <= 0; }
  /// Columns [first(row), last(row)) are seen by `row`.
  std::int64_t last(std::int64_t row) const {
    return std::clamp<std::int64_t>(diagonal + row, 0, columns);
  }
  std::int64_t first(const QueryBlock& block, std::int64_t row) const {
    if (block.first_key == nullptr) return 0;
    return std::clamp<std::int64_t>(block.first_key[row] - key, 0, last(row));
  }
  /// First row that sees `column` or a later one.
  std::int64_t first_row(std::int64_t column) const {
    return std::max<std::int64_t>(0, column + 1 - diagonal);
  }
};

inline Overlap overlap(const QueryBlock& block, std::int64_t key, std::int64_t end_key) {
  const std::int64_t columns = std::min(end_key, block.end_key()) - key;
  const bool unseen = block.begin_key() >= end_key;
  return {key, unseen ? 0 : columns, block.position - key + 1};
}

}  // namespace trainctl
