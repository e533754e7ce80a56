// Blocks of queries and keys in attention, and the operations of attention on rows of scores.
// Internal to lib/ops/cpu.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "ops/attention.h"
#include "ops/cpu/attention/pack.h"
#include "ops/cpu/vector/philox_lanes.h"
#include "ops/cpu/vector/vector_math.h"

namespace trainctl {

// Blocks of queries of one head, and blocks of keys: their rows and positions, and the keys that a
// block of queries sees. Internal to lib/ops/cpu.

/// Up to block_queries consecutive queries of one head.
struct QueryBlock {
  std::int64_t sequence, head;
  std::int64_t first;  // index of the first query in its sequence
  std::int64_t count;
  std::int64_t position;          // position of the first query
  std::int64_t row;               // row of the first query's token
  const std::int32_t* first_key;  // [block_queries]: first position each query sees; 0 if null

  /// The number of rows, rounded up to what Dot's products process at a time.
  template <class Dot>
  std::int64_t rows() const {
    return round_up(count, Dot::row_step);
  }
  /// The position after the last one that some query of the block sees.
  std::int64_t end_key() const { return position + count; }
  std::int64_t begin_key() const { return first_key == nullptr ? 0 : first_key[0]; }
};

/// The queries that share one KV head, cut into blocks; all heads of a range of queries come before
/// the next range. A block has queries of a single run.
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
  std::int64_t row;       // row of the first key's token
  std::int64_t position;  // position of the first key
  std::int64_t count;
  std::int64_t end() const { return position + count; }
};

/// The number of blocks of keys in a run, and in a sequence; a block has keys of a single run.
inline std::int64_t blocks_of_run(const TokenRuns& keys) {
  return (keys.length + block_keys - 1) / block_keys;
}
inline std::int64_t key_blocks_of(const TokenRuns& keys) {
  return keys.count() * blocks_of_run(keys);
}

inline KeyBlock key_block(const TokenRuns& keys, std::int64_t sequence, std::int64_t index) {
  const TokenRun& tokens = keys.at(index / blocks_of_run(keys));
  const std::int64_t begin = index % blocks_of_run(keys) * block_keys;
  return {tokens.row + sequence * keys.stride + begin, tokens.position + begin,
          std::min(block_keys, keys.length - begin)};
}

/// Whether one of the blocks [begin, end) has a key before `position`.
inline bool any_key_before(const TokenRuns& keys, std::int64_t position, std::int64_t begin,
                           std::int64_t end) {
  for (std::int64_t index = begin; index < end; ++index) {
    if (key_block(keys, 0, index).position < position) return true;
  }
  return false;
}

/// Sets block.first_key from the queries' first positions and the key limits, if there are any.
/// Rows after the last query get the value of the last query.
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

/// The part of a key block that a query block sees.
struct Overlap {
  std::int64_t key;       // position of the key block's first key
  std::int64_t columns;   // keys that the last query may see
  std::int64_t diagonal;  // row r sees columns < diagonal + r

  bool empty() const { return columns <= 0; }
  /// `row` sees columns [first(row), last(row)).
  std::int64_t last(std::int64_t row) const {
    return std::clamp<std::int64_t>(diagonal + row, 0, columns);
  }
  std::int64_t first(const QueryBlock& block, std::int64_t row) const {
    if (block.first_key == nullptr) return 0;
    return std::clamp<std::int64_t>(block.first_key[row] - key, 0, last(row));
  }
  /// The first row that sees `column` or a later one.
  std::int64_t first_row(std::int64_t column) const {
    return std::max<std::int64_t>(0, column + 1 - diagonal);
  }
};

inline Overlap overlap(const QueryBlock& block, const KeyBlock& keys) {
  const std::int64_t columns = std::min(keys.end(), block.end_key()) - keys.position;
  const bool unseen = block.begin_key() >= keys.end();
  return {keys.position, unseen ? 0 : columns, block.position - keys.position + 1};
}

// Attention's operations on one row of scores: mask, maximum, exponentials, dropout. Internal to
// lib/ops/cpu.

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// The column up to which rows of scores are processed. Products read row_step rows together, as
/// far as the last of these rows sees. They also widen ranges of steps, or of rows if keys are the
/// rows. Each of these effects adds less than row_step.
template <class Dot>
std::int64_t padded_columns(std::int64_t last) {
  return std::min(block_keys, round_up(last + 2 * Dot::row_step, 32));
}

/// The columns that a row with `last` visible ones processes: whole vectors.
inline std::int64_t row_columns(std::int64_t last) { return round_up(last, 16); }

/// Sets the scores of unseen keys to -infinity; returns the number of columns to process.
inline std::int64_t mask_row(float* scores, std::int64_t first, std::int64_t last) {
  const std::int64_t columns = row_columns(last);
  std::fill(scores, scores + first, -infinity);
  std::fill(scores + last, scores + columns, -infinity);
  return columns;
}

/// The largest of the first `columns` scores; `columns` must be a multiple of 16.
inline float row_max(const float* scores, std::int64_t columns) {
  Vector highest = *reinterpret_cast<const Vector*>(scores);
  for (std::int64_t i = vector_lanes; i < columns; i += vector_lanes) {
    const Vector next = *reinterpret_cast<const Vector*>(scores + i);
    highest = next > highest ? next : highest;
  }
  float result = highest[0];
  for (int lane = 1; lane < vector_lanes; ++lane) {
    result = highest[lane] > result ? highest[lane] : result;
  }
  return result;
}

/// scores = exp(scale * scores - shift), for bounded exponents; returns their sum.
inline float exponentials(float* scores, float scale, float shift, std::int64_t columns) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float weight = fast_exp_bounded(scores[i] * scale - shift);
    sum += weight;
    scores[i] = weight;
  }
  return sum;
}

/// scores = tanh(scores * factor) with factor = scale / cap: scores after the cap, divided by it.
inline void take_parts_of_cap(float* scores, float factor, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) scores[i] = fast_tanh(scores[i] * factor);
}

/// Multiplies d_scores by the derivative of the cap, 1 - parts^2.
inline void differentiate_cap(const float* parts, float* d_scores, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) d_scores[i] *= 1 - parts[i] * parts[i];
}

/// d_scores = weights (d_weights - mean); d_scores holds d_weights on entry.
inline void differentiate(const float* weights, float* d_scores, float mean, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) d_scores[i] = weights[i] * (d_scores[i] - mean);
}

/// Like differentiate(), with dropout: d_scores holds the gradient of the dropped weights on entry,
/// and weights hold the dropped weights on exit.
inline void differentiate(float* weights, float* d_scores, const float* factors, float mean,
                          std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    d_scores[i] = weights[i] * (d_scores[i] * factors[i] - mean);
    weights[i] *= factors[i];
  }
}

template <class T>
float dot_row(const T* a, const T* b, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += to_float(a[i]) * to_float(b[i]);
  return sum;
}

/// The dropout factors for the keys of one query: factors[i] is for the key at position `key` + i,
/// i < columns.
inline void fill_factors(const AttentionDropout& dropout, const QueryBlock& block, std::int64_t row,
                         std::int64_t key, std::int64_t columns, float* factors) {
  const StepState& state = *dropout.key.state;
  const DropoutFactors random(state.seed, dropout_stream(state.step, dropout.key.site),
                              dropout.key.probability);
  const std::int64_t query = std::min(row, block.count - 1);
  const std::int64_t token = dropout.global_token.as<std::int64_t>()[block.row + query];
  const std::int64_t index =
      (token * dropout.heads_total + dropout.first_head + block.head) * dropout.seq_length + key;
  random.for_runs(static_cast<std::uint64_t>(index), columns,
                  [factors](std::int64_t at, std::int64_t count, const float* run) {
                    std::copy(run, run + count, factors + at);
                  });
}

}  // namespace trainctl
