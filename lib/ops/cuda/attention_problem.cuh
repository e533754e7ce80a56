// What the attention kernels of both passes are given: where tokens lie, which keys a query sees,
// what dropout keeps; and how tiles of tokens come into shared memory.
#pragma once

#include "base/philox.h"
#include "ops/attention.h"
#include "ops/cuda/attention_tiles.cuh"

namespace trainctl::cuda {

inline constexpr int most_runs = 128;
inline constexpr int no_position = 0x7fffffff;  // of a key that is not there: nothing sees it

/// TokenRuns in a kernel's parameters.
struct Runs {
  int length, stride, count;
  struct {
    int position, row;
  } run[most_runs];

  /// Throws Error{unavailable} where there are more runs than parameters hold.
  static Runs of(const TokenRuns& runs);
  __device__ std::int64_t row(int token, int sequence) const {
    return run[token / length].row + std::int64_t{sequence} * stride + token % length;
  }
  __device__ int position(int token) const { return run[token / length].position + token % length; }
};

template <class T>
struct AttentionProblem {
  const T* q;
  const T* k;
  const T* v;
  const std::int32_t* first_position;  // or null
  Runs queries, keys;
  int query_length, key_length, heads, kv_heads, head_dim;
  float scale;
  bool wide;  // heads begin at multiples of 16 bytes
  // Dropout; none where `state` is null.
  const StepState* state;
  std::int64_t site;
  float probability;
  const std::int64_t* token;
  std::int64_t first_head, heads_total, seq_length;

  __device__ int kv_head(int head) const { return head / (heads / kv_heads); }
  /// Of a query by its row: the first position that it sees.
  __device__ int first_seen(std::int64_t row) const {
    return first_position != nullptr ? first_position[row] : 0;
  }
  /// What dropout multiplies the probability of a key by.
  __device__ float factor(const Philox& random, std::int64_t query_row, int head,
                          int key_position) const {
    const std::int64_t index =
        (token[query_row] * heads_total + first_head + head) * seq_length + key_position;
    const bool keep = random.uniform(static_cast<std::uint64_t>(index)) >= probability;
    return keep ? 1.0F / (1.0F - probability) : 0.0F;
  }
  __device__ Philox random() const {
    return state != nullptr ? Philox(state->seed, dropout_stream(state->step, site)) : Philox(0, 0);
  }
  /// Whether some query of [begin, end) can see some key of the other range.
  __device__ bool may_see(int query_begin, int query_end, int key_begin, int key_end) const {
    int last = -1;
    for (int at = query_begin; at < query_end; at += queries.length - at % queries.length) {
      const int end = min(query_end, at - at % queries.length + queries.length);
      last = max(last, queries.position(end - 1));
    }
    for (int at = key_begin; at < key_end; at += keys.length - at % keys.length) {
      if (keys.position(at) <= last) return true;
    }
    return false;
  }
};

/// The parts of the problem that both passes' arguments have.
template <class T, class Args>
AttentionProblem<T> problem_of(const Args& args) {
  const AttentionShape& shape = args.shape;
  AttentionProblem<T> problem{};
  problem.q = args.q.template as<T>();
  problem.k = args.k.template as<T>();
  problem.v = args.v.template as<T>();
  if (!args.first_position.empty()) {
    problem.first_position = args.first_position.template as<std::int32_t>();
  }
  problem.queries = Runs::of(shape.queries());
  problem.keys = Runs::of(shape.keys());
  problem.query_length = static_cast<int>(shape.query_length);
  problem.key_length = static_cast<int>(shape.key_length);
  problem.heads = static_cast<int>(shape.heads);
  problem.kv_heads = static_cast<int>(shape.kv_heads);
  problem.head_dim = static_cast<int>(shape.head_dim);
  problem.scale = shape.scale;
  problem.wide =
      shape.head_dim % vector_width<T> == 0 && all_aligned({args.q.data, args.k.data, args.v.data});
  if (args.dropout.key.probability == 0.0F) return problem;
  problem.state = args.dropout.key.state;
  problem.site = args.dropout.key.site;
  problem.probability = args.dropout.key.probability;
  problem.token = args.dropout.global_token.template as<std::int64_t>();
  problem.first_head = args.dropout.first_head;
  problem.heads_total = args.dropout.heads_total;
  problem.seq_length = args.dropout.seq_length;
  return problem;
}

/// Brings head `head` of tokens [begin, end) into a tile, zeroes after them and after the head's
/// elements. It is there after commit_copies, wait_for_copies and a barrier.
template <class T, int tile, int dim>
__device__ void bring(T* to, const T* from, bool wide, const Runs& runs, int sequence, int begin,
                      int end, int head, int heads, int head_dim) {
  constexpr int width = vector_width<T>;
  constexpr int chunks = dim / width;
  for (int i = static_cast<int>(threadIdx.x); i < tile * chunks; i += 2 * tile) {
    const int token = begin + i / chunks;
    const int column = i % chunks * width;
    T* place = to + i / chunks * tile_stride<T>(dim) + column;
    const bool present = token < end && column < head_dim;
    const T* source =
        present ? from + (runs.row(token, sequence) * heads + head) * head_dim + column : from;
    if (wide) {
      start_copy(place, source, present);
      continue;
    }
    for (int j = 0; j < width; ++j) {
      place[j] = present && column + j < head_dim ? source[j] : T{};
    }
  }
}

}  // namespace trainctl::cuda
