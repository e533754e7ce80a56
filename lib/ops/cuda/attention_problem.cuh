// The arguments of the attention kernels of both passes: the rows of tokens, the keys that a query
// sees, and the dropout mask. Also loads tiles of tokens into shared memory.
#pragma once

#include "base/philox.h"
#include "ops/cuda/attention_runs.cuh"
#include "ops/cuda/attention_tiles.cuh"

namespace trainctl::cuda {

/// Ranges for some queries: of their own positions, and of the first positions that they see.
struct Sight {
  Span own, seen;
  /// Whether one of the queries may see one of the keys.
  __device__ bool sees(const Span& key) const {
    return key.first <= own.last && key.last >= seen.first;
  }
};

template <class T>
struct AttentionProblem {
  const T* q;
  const T* k;
  const T* v;
  const std::int32_t* first_position;  // may be null
  Runs queries, keys;
  int query_length, key_length, heads, kv_heads, head_dim;
  float scale;
  float cap;  // limit of the scaled scores; none if 0
  KeyLimits limits;
  bool wide;  // heads are aligned to 16 bytes
  // Dropout is off if `state` is null.
  const StepState* state;
  std::int64_t site;
  float probability;
  const std::int64_t* token;
  std::int64_t first_head, heads_total, seq_length;

  __device__ int kv_head(int head) const { return head / (heads / kv_heads); }
  /// The first position that the query with this row and position sees.
  __device__ int first_seen(std::int64_t row, int position) const {
    const int document = first_position != nullptr ? first_position[row] : 0;
    return static_cast<int>(limits.first_seen(position, document));
  }
  /// The ranges for queries [begin, end) of a sequence.
  __device__ Sight sight(int sequence, int begin, int end) const {
    Sight all{queries.span(begin, end), {0, 0}};
    if (first_position == nullptr && limits.window == 0 && limits.chunk == 0) return all;
    all.seen = {no_position, -1};
    for (int run = begin / queries.length; run * queries.length < end; ++run) {
      // The first seen position is monotonic within a run, so its ends give the range.
      const int first = max(begin, run * queries.length);
      const int last = min(end, (run + 1) * queries.length) - 1;
      const std::int64_t first_row = queries.row(first, sequence);
      const std::int64_t last_row = queries.row(last, sequence);
      all.seen.first = min(all.seen.first, first_seen(first_row, queries.position(first)));
      all.seen.last = max(all.seen.last, first_seen(last_row, queries.position(last)));
    }
    return all;
  }
  /// A score after the cap c, divided by c: tanh(s / c).
  __device__ float part_of_cap(float score) const { return tanhf(score * scale / cap); }
  /// Whether dropout keeps the probability of this query and key.
  __device__ bool keeps(const Philox& random, std::int64_t query_row, int head,
                        int key_position) const {
    const std::int64_t index =
        (token[query_row] * heads_total + first_head + head) * seq_length + key_position;
    return random.uniform(static_cast<std::uint64_t>(index)) >= probability;
  }
  /// Dropout's factor for a probability, depending on whether it is kept.
  __device__ float factor(bool kept) const { return kept ? 1.0F / (1.0F - probability) : 0.0F; }
  __device__ Philox random() const {
    return state != nullptr ? Philox(state->seed, dropout_stream(state->step, site)) : Philox(0, 0);
  }
  /// The first tile of keys from `key` on that some query sees; key_length or more if none.
  __device__ int next_seen(const Sight& query, int key, int tile) const {
    while (key < key_length && !query.sees(keys.span(key, min(key_length, key + tile)))) {
      key += tile;
    }
    return key;
  }
  /// Whether each of the queries sees each key of a tile; false for a partial tile.
  __device__ bool all_seen(const Sight& query, const Span& key, bool whole) const {
    return whole && key.last <= query.own.first && query.seen.last <= key.first;
  }
};

/// Sets the arguments that are common to both passes.
template <class T>
AttentionProblem<T> problem_of(const AttentionArgs& args) {
  const AttentionShape& shape = args.shape;
  AttentionProblem<T> problem{};
  problem.q = args.q.as<T>();
  problem.k = args.k.as<T>();
  problem.v = args.v.as<T>();
  if (!args.first_position.empty()) {
    problem.first_position = args.first_position.as<std::int32_t>();
  }
  problem.queries = Runs::of(shape.queries());
  problem.keys = Runs::of(shape.keys());
  problem.query_length = static_cast<int>(shape.query_length);
  problem.key_length = static_cast<int>(shape.key_length);
  problem.heads = static_cast<int>(shape.heads);
  problem.kv_heads = static_cast<int>(shape.kv_heads);
  problem.head_dim = static_cast<int>(shape.head_dim);
  problem.scale = shape.scale;
  problem.cap = shape.cap;
  problem.limits = shape.limits;
  problem.wide =
      shape.head_dim % vector_width<T> == 0 && all_aligned({args.q.data, args.k.data, args.v.data});
  if (args.dropout.key.probability == 0.0F) return problem;
  problem.state = args.dropout.key.state;
  problem.site = args.dropout.key.site;
  problem.probability = args.dropout.key.probability;
  problem.token = args.dropout.global_token.as<std::int64_t>();
  problem.first_head = args.dropout.first_head;
  problem.heads_total = args.dropout.heads_total;
  problem.seq_length = args.dropout.seq_length;
  return problem;
}

/// Starts to load head `head` of tokens [begin, end) into a tile, with zeros after the tokens and
/// after the head's elements. Complete after commit_copies, wait_for_copies and a barrier.
template <class T, int tile, int dim>
__device__ void bring(T* to, const T* from, bool wide, const Runs& runs, int sequence, int begin,
                      int end, int head, int heads, int head_dim) {
  constexpr int width = vector_width<T>;
  constexpr int chunks = dim / width;
  constexpr int rows = 2 * tile / chunks;  // loaded at once
  const int column = static_cast<int>(threadIdx.x) % chunks * width;
  const int first = static_cast<int>(threadIdx.x) / chunks;
  to += column;
  from += head * head_dim + column;
  const std::int64_t step = std::int64_t{heads} * head_dim;
  if (wide && runs.together(begin, end)) {
    const T* source = from + (runs.row(begin, sequence) + first) * step;
    const int count = column < head_dim ? end - begin : 0;
#pragma unroll
    for (int i = 0; i < tile / rows; ++i) {
      const int row = first + i * rows;
      start_copy(to + row * tile_stride<T>(dim), row < count ? source + i * rows * step : from,
                 row < count);
    }
    return;
  }
#pragma unroll 1
  for (int row = first; row < tile; row += rows) {
    const bool present = begin + row < end;
    const T* source = present ? from + runs.row(begin + row, sequence) * step : from;
#pragma unroll 1
    for (int i = 0; i < width; ++i) {
      to[row * tile_stride<T>(dim) + i] = present && column + i < head_dim ? source[i] : T{};
    }
  }
}

/// Starts to load a tile of keys or values, from `key` on.
template <class T, int tile, int dim>
__device__ void bring_keys(T* to, const T* from, const AttentionProblem<T>& problem, int sequence,
                           int key, int kv_head) {
  bring<T, tile, dim>(to, from, problem.wide, problem.keys, sequence, key,
                      min(problem.key_length, key + tile), kv_head, problem.kv_heads,
                      problem.head_dim);
  commit_copies();
}

/// Loads the positions of a tile of keys from `key` on, one per thread.
template <int tile, class T>
__device__ void place_keys(int* position, const AttentionProblem<T>& problem, int key) {
  const int at = key + static_cast<int>(threadIdx.x);
  if (threadIdx.x >= tile) return;
  position[threadIdx.x] = at < problem.key_length ? problem.keys.position(at) : no_position;
}

}  // namespace trainctl::cuda
