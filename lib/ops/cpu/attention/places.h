// Blocks of queries of one head and blocks of keys: where they lie, and which keys a block of
// queries sees. Internal to lib/ops/cpu.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attention.h"
#include "ops/cpu/attention/blocks.h"

namespace trainctl {

/// Up to block_queries consecutive queries of one head.
struct QueryBlock {
  std::int64_t sequence, head;
  std::int64_t first;  // of the first query among those of its sequence
  std::int64_t count;
  std::int64_t position;          // of the first query
  std::int64_t row;               // of its token
  const std::int32_t* first_key;  // [block_queries]: first position each sees; null: position 0

  /// With those up to the next multiple of what Dot's products take at a time.
  template <class Dot>
  std::int64_t rows() const {
    return round_up(count, Dot::row_step);
  }
  /// Position after the last one that any query of the block sees.
  std::int64_t end_key() const { return position + count; }
  std::int64_t begin_key() const { return first_key == nullptr ? 0 : first_key[0]; }
};

/// The queries that share one KV head are cut into blocks, all heads of a range of queries before
/// the next range. No block has queries of two runs.
struct BlockList {
  const AttentionShape& shape;
  TokenRuns queries;

  explicit BlockList(const AttentionShape& given) : shape(given), queries(given.queries()) {}
  std::int64_t group() const { return shape.heads / shape.kv_heads; }
  std::int64_t of_run() const { return (queries.length + block_queries - 1) / block_queries; }
  std::int64_t size() const { return queries.count() * of_run() * group(); }
  QueryBlock block(std::int64_t sequence, std::int64_t kv_head, std::int64_t index) const {
    const std::int64_t number = index / group();
    const std::int64_t run = number / of_run();
    const std::int64_t begin = number % of_run() * block_queries;
    const TokenRun& tokens = queries.at(run);
    return {sequence,
            kv_head * group() + index % group(),
            run * queries.length + begin,
            std::min(block_queries, queries.length - begin),
            tokens.position + begin,
            tokens.row + sequence * queries.stride + begin,
            nullptr};
  }
};

/// Up to block_keys consecutive keys of a sequence.
struct KeyBlock {
  std::int64_t row;       // of the first key's token
  std::int64_t position;  // of the first key
  std::int64_t count;
  std::int64_t end() const { return position + count; }
};

/// The keys of a sequence in blocks, none of which has keys of two runs.
struct KeyList {
  TokenRuns keys;

  std::int64_t of_run() const { return (keys.length + block_keys - 1) / block_keys; }
  std::int64_t size() const { return keys.count() * of_run(); }
  KeyBlock block(std::int64_t sequence, std::int64_t index) const {
    const TokenRun& tokens = keys.at(index / of_run());
    const std::int64_t begin = index % of_run() * block_keys;
    return {tokens.row + sequence * keys.stride + begin, tokens.position + begin,
            std::min(block_keys, keys.length - begin)};
  }
  /// Whether one of the blocks [begin, end) has a key before a position.
  bool any_before(std::int64_t position, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t index = begin; index < end; ++index) {
      if (block(0, index).position < position) return true;
    }
    return false;
  }
};

/// Fills first_key for the block's rows from the queries' first positions and the limits of what
/// they see, where there are any; the rows after the last query get its value.
inline void set_first_keys(const Tensor& first_position, const KeyLimits& limits, QueryBlock& block,
                           std::int32_t* first_key) {
  if (first_position.empty() && !limits.any()) return;
  for (std::int64_t i = 0; i < block.count; ++i) {
    const std::int64_t document =
        first_position.empty() ? 0 : first_position.as<std::int32_t>()[block.row + i];
    first_key[i] = static_cast<std::int32_t>(limits.first_seen(block.position + i, document));
  }
  std::fill(first_key + block.count, first_key + block_queries, first_key[block.count - 1]);
  block.first_key = first_key;
}

/// The part of a key block that a query block works on.
struct Overlap {
  std::int64_t key;       // position of the key block's first key
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

inline Overlap overlap(const QueryBlock& block, const KeyBlock& keys) {
  const std::int64_t columns = std::min(keys.end(), block.end_key()) - keys.position;
  const bool unseen = block.begin_key() >= keys.end();
  return {keys.position, unseen ? 0 : columns, block.position - keys.position + 1};
}

}  // namespace trainctl
