// Attention backward from out and logsumexp (Dao 2023, FlashAttention-2, algorithm 2). Two passes
// recompute the probabilities: first dk and dv with a block per tile of keys, then dq with a block
// per tile of queries, so that every sum has one owner and a fixed order. dq may share memory with
// d_out.
#include "base/scratch.h"
#include "ops/cuda/attention_problem.cuh"
#include "ops/cuda/attention_tiles.cuh"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"

namespace trainctl::cuda {
namespace {

template <class T>
struct Backward {
  AttentionProblem<T> problem;
  const T* out;
  const float* logsumexp;
  const T* d_out;
  T* dq;
  T* dk;
  T* dv;
  float* mean;  // d_out . out per query and head, laid out as logsumexp; null if scratch lacks room
};

/// The values of a query that its scores' gradients need.
struct Query {
  float logsumexp;      // multiplied by exponent_unit
  float mean;           // d_out . out
  int position, first;  // sees keys in [first, position]; none if padding
};

/// The part of a . b in packs of `width` elements, from `first` on, `step` apart.
template <int width, class T>
__device__ float product_of(const T* a, const T* b, int first, int step, int count) {
  float sum = 0;
  for (int i = first; i < count; i += step) {
    float x[width];
    float y[width];
    load<width>(a + i, x);
    load<width>(b + i, y);
#pragma unroll
    for (int j = 0; j < width; ++j) sum += x[j] * y[j];
  }
  return sum;
}

/// Computes `count` elements of args.mean, eight lanes per element.
template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    mean_kernel(const __grid_constant__ Backward<T> args, std::int64_t count) {
  constexpr int lanes = 8;
  const AttentionProblem<T>& problem = args.problem;
  const std::int64_t statistic = grid_thread() / lanes;
  const int lane = static_cast<int>(threadIdx.x % lanes);
  const std::int64_t at = min(statistic, count - 1);
  const std::int64_t start =
      elements_of(problem.queries, at, problem.query_length, problem.heads, problem.head_dim);
  float sum = product_of<width>(args.out + start, args.d_out + start, lane * width, lanes * width,
                                problem.head_dim);
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(whole_warp, sum, offset);
  }
  if (lane == 0 && statistic < count) args.mean[statistic] = sum;
}

/// Loads the values of a tile of queries from `begin` on, one query per thread.
template <class T, int tile>
__device__ void look_at(Query* queries, const Backward<T>& args, int sequence, int head,
                        int begin) {
  const int at = static_cast<int>(threadIdx.x);
  if (at >= tile) return;
  const AttentionProblem<T>& problem = args.problem;
  const int query = begin + at;
  if (query >= problem.query_length) {
    queries[at] = {0.0F, 0.0F, -1, 0};
    return;
  }
  const std::int64_t row = problem.queries.row(query, sequence);
  const std::int64_t statistic =
      (std::int64_t{sequence} * problem.heads + head) * problem.query_length + query;
  const std::int64_t start = (row * problem.heads + head) * problem.head_dim;
  const float mean = args.mean != nullptr ? args.mean[statistic]
                                          : product_of<1>(args.out + start, args.d_out + start, 0,
                                                          1, problem.head_dim);
  const int position = problem.queries.position(query);
  queries[at] = {args.logsumexp[statistic] * exponent_unit<T>, mean, position,
                 problem.first_seen(row, position)};
}

/// Replaces a score by the key's probability after dropout, and the gradient of this probability by
/// the gradient of the score. `factor` is dropout's.
template <class T>
__device__ void link(const AttentionProblem<T>& problem, const Query& query, bool seen,
                     float factor, float& score, float& gradient) {
  float scale = problem.scale * exponent_unit<T>;
  float slope = problem.scale;  // derivative of the score by the product of query and key
  if (problem.cap > 0) {
    score = problem.part_of_cap(score);
    scale = problem.cap * exponent_unit<T>;
    slope *= 1 - score * score;
  }
  const float chance = seen ? exponential<T>(score * scale - query.logsumexp) : 0.0F;
  score = chance * factor;
  gradient = chance * (factor * gradient - query.mean) * slope;
}

/// Links all scores of a thread to gradients. `kept` is from kept_by_dropout, or all ones.
template <class T, int tile, class QueryOf, class KeyPosition>
__device__ void link_all(const AttentionProblem<T>& problem, bool all_seen, std::uint32_t kept,
                         const QueryOf& query_of, const KeyPosition& key_position,
                         Fragment<T, tile>& scores, Fragment<T, tile>& gradients) {
  const auto each = [&](const auto& one) {
#pragma unroll
    for (int j = 0; j < scores.own; ++j) {
#pragma unroll
      for (int i = 0; i < scores.rows; ++i) one(i, j);
    }
  };
  if (all_seen && problem.state == nullptr) {
    each([&](int i, int j) {
      link(problem, query_of(i, j), true, 1.0F, scores.at(i, j), gradients.at(i, j));
    });
    return;
  }
  each([&](int i, int j) {
    const Query query = query_of(i, j);
    const int at = key_position(i, j);
    const bool seen = at <= query.position && at >= query.first;
    link(problem, query, seen, problem.factor(kept >> (scores.own * i + j) & 1), scores.at(i, j),
         gradients.at(i, j));
  });
}

/// Writes a tile of gradients of this block's own tokens to rows of `to`.
template <class T, int tile, int columns>
__device__ void write_rows(T* to, const Fragment<T, columns>& values, const Runs& runs,
                           int sequence, int begin, int end, int head, int heads, int head_dim,
                           int first_column) {
#pragma unroll
  for (int i = 0; i < values.rows; ++i) {
    const int token = begin + values.row(i);
    if (token >= end) continue;
    T* row = to + (runs.row(token, sequence) * heads + head) * head_dim;
#pragma unroll
    for (int j = 0; j < values.own; ++j) {
      const int column = first_column + values.column(j);
      if (column < head_dim) row[column] = narrow<T>(values.at(i, j));
    }
  }
}

/// Columns of dk and dv per block, limited by registers.
template <int dim>
inline constexpr int part_columns = dim > 128 ? 128 : dim;

/// Tiles of queries that a keys block holds: with 2, the next is loaded during products.
template <class T, int dim>
inline constexpr int query_stages = sizeof(T) == 2 && dim <= 128 ? 2 : 1;

template <class T, int dim>
__global__ void __launch_bounds__(2 * tile_rows_of<T, dim>)
    keys_kernel(const __grid_constant__ Backward<T> args) {
  constexpr int tile = tile_rows_of<T, dim>;
  constexpr int stride = tile_stride<T>(dim);
  constexpr int columns = part_columns<dim>;
  constexpr int parts = dim / columns;
  constexpr int stages = query_stages<T, dim>;
  using Scores = Fragment<T, tile>;
  const AttentionProblem<T>& problem = args.problem;
  T* k = dynamic_shared<T>();
  T* v = k + tile * stride;
  T* tiles = v + tile * stride;  // q and d_out of each stage
  T* room = tiles + 2 * stages * tile * stride;
  struct Tile;
  Query* queries = static_shared<Tile, Query, stages * tile>();

  // The first keys are seen by the most queries, so their blocks start first.
  const int begin = static_cast<int>(blockIdx.z) * tile;
  const int end = min(problem.key_length, begin + tile);
  const int kv_head = static_cast<int>(blockIdx.x) / parts;
  const int first_column = static_cast<int>(blockIdx.x) % parts * columns;
  const int sequence = static_cast<int>(blockIdx.y);
  const int group = problem.heads / problem.kv_heads;
  const int last_head = (kv_head + 1) * group;
  const Span span = problem.keys.span(begin, end);
  const Philox random = problem.random();
  int position[Scores::rows];
#pragma unroll
  for (int i = 0; i < Scores::rows; ++i) {
    const int key = begin + Scores::row(i);
    position[i] = key < end ? problem.keys.position(key) : no_position;
  }
  // Iterates over the tiles of queries that see a key, for all heads that share the keys.
  int head = kv_head * group;
  int query = 0;
  const auto find = [&] {
    while (head < last_head) {
      for (; query < problem.query_length; query += tile) {
        const int query_end = min(problem.query_length, query + tile);
        if (problem.sight(sequence, query, query_end).sees(span)) return;
      }
      query = 0;
      ++head;
    }
  };
  const auto bring_queries = [&](int stage) {
    T* to = tiles + 2 * stage * tile * stride;
    const int query_end = min(problem.query_length, query + tile);
    bring<T, tile, dim>(to, problem.q, problem.wide, problem.queries, sequence, query, query_end,
                        head, problem.heads, problem.head_dim);
    bring<T, tile, dim>(to + tile * stride, args.d_out, problem.wide, problem.queries, sequence,
                        query, query_end, head, problem.heads, problem.head_dim);
    commit_copies();
    look_at<T, tile>(queries + stage * tile, args, sequence, head, query);
  };

  bring<T, tile, dim>(k, problem.k, problem.wide, problem.keys, sequence, begin, end, kv_head,
                      problem.kv_heads, problem.head_dim);
  bring<T, tile, dim>(v, problem.v, problem.wide, problem.keys, sequence, begin, end, kv_head,
                      problem.kv_heads, problem.head_dim);
  Fragment<T, columns> dk;
  Fragment<T, columns> dv;
  find();
  if (head < last_head) bring_queries(0);
  for (int stage = 0; head < last_head; stage = (stage + 1) % stages) {
    const int local_head = head;
    const int local_query = query;
    const Query* own = queries + stage * tile;
    const T* q = tiles + 2 * stage * tile * stride;
    const T* d_out = q + tile * stride;
    query += tile;
    find();
    wait_for_copies<0>();
    __syncthreads();  // the queries have arrived; products of earlier ones are done
    if (stages > 1 && head < last_head) bring_queries((stage + 1) % stages);
    Scores scores = multiply_rows<T, tile, dim>(k, q);
    Scores gradients = multiply_rows<T, tile, dim>(v, d_out);
    const bool all_seen = problem.all_seen(
        problem.sight(sequence, local_query, min(problem.query_length, local_query + tile)), span,
        end - begin == tile && local_query + tile <= problem.query_length);
    std::uint32_t kept = ~0U;
    if (problem.state != nullptr) {
      kept = kept_by_dropout<Scores>(
          problem, random, local_head,
          [&](int, int j) {
            return problem.queries.row(
                min(local_query + Scores::column(j), problem.query_length - 1), sequence);
          },
          [&](int i, int) { return problem.keys.position(min(begin + Scores::row(i), end - 1)); });
    }
    link_all<T, tile>(
        problem, all_seen, kept, [&](int, int j) { return own[Scores::column(j)]; },
        [&](int i, int) { return position[i]; }, scores, gradients);
    add_product<T, tile, columns>(dv, scores, d_out + first_column, stride, room);
    add_product<T, tile, columns>(dk, gradients, q + first_column, stride, room);
    if (stages > 1) continue;
    __syncthreads();  // the next queries overwrite these
    if (head < last_head) bring_queries(0);
  }
  commit_copies();
  wait_for_copies<0>();
  write_rows<T, tile>(args.dk, dk, problem.keys, sequence, begin, end, kv_head, problem.kv_heads,
                      problem.head_dim, first_column);
  write_rows<T, tile>(args.dv, dv, problem.keys, sequence, begin, end, kv_head, problem.kv_heads,
                      problem.head_dim, first_column);
}

template <class T, int dim>
__global__ void __launch_bounds__(2 * tile_rows_of<T, dim>)
    queries_kernel(const __grid_constant__ Backward<T> args) {
  constexpr int tile = tile_rows_of<T, dim>;
  constexpr int stride = tile_stride<T>(dim);
  using Scores = Fragment<T, tile>;
  const AttentionProblem<T>& problem = args.problem;
  T* q = dynamic_shared<T>();
  T* d_out = q + tile * stride;
  T* k = d_out + tile * stride;
  T* v = k + tile * stride;
  T* room = v + tile * stride;
  struct Tile;
  Query* queries = static_shared<Tile, Query, tile>();
  struct Positions;
  int* key_position = static_shared<Positions, int, tile>();

  const int begin = static_cast<int>(gridDim.z - 1 - blockIdx.z) * tile;
  const int end = min(problem.query_length, begin + tile);
  const int head = static_cast<int>(blockIdx.x);
  const int sequence = static_cast<int>(blockIdx.y);
  const int kv_head = problem.kv_head(head);
  const Sight sight = problem.sight(sequence, begin, end);
  const Philox random = problem.random();

  bring<T, tile, dim>(q, problem.q, problem.wide, problem.queries, sequence, begin, end, head,
                      problem.heads, problem.head_dim);
  bring<T, tile, dim>(d_out, args.d_out, problem.wide, problem.queries, sequence, begin, end, head,
                      problem.heads, problem.head_dim);
  int key = problem.next_seen(sight, 0, tile);
  if (key < problem.key_length)
    bring_keys<T, tile, dim>(v, problem.v, problem, sequence, key, kv_head);
  look_at<T, tile>(queries, args, sequence, head, begin);
  __syncthreads();
  Query own[Scores::rows];
#pragma unroll
  for (int i = 0; i < Scores::rows; ++i) own[i] = queries[Scores::row(i)];
  Fragment<T, dim> dq;
  while (key < problem.key_length) {
    const int key_end = min(problem.key_length, key + tile);
    wait_for_copies<0>();
    __syncthreads();  // the values have arrived, and products of the last keys are done
    bring_keys<T, tile, dim>(k, problem.k, problem, sequence, key, kv_head);
    place_keys<tile>(key_position, problem, key);
    Scores gradients = multiply_rows<T, tile, dim>(d_out, v);
    wait_for_copies<0>();
    __syncthreads();  // the keys have arrived, and products of the values are done
    const bool all_seen =
        problem.all_seen(sight, problem.keys.span(key, key_end), key_end - key == tile);
    key = problem.next_seen(sight, key + tile, tile);
    if (key < problem.key_length)
      bring_keys<T, tile, dim>(v, problem.v, problem, sequence, key, kv_head);
    Scores scores = multiply_rows<T, tile, dim>(q, k);
    std::uint32_t kept = ~0U;
    if (problem.state != nullptr) {
      kept = kept_by_dropout<Scores>(
          problem, random, head,
          [&](int i, int) {
            return problem.queries.row(min(begin + Scores::row(i), end - 1), sequence);
          },
          [&](int, int j) { return key_position[Scores::column(j)]; });
    }
    link_all<T, tile>(
        problem, all_seen, kept, [&](int i, int) { return own[i]; },
        [&](int, int j) { return key_position[Scores::column(j)]; }, scores, gradients);
    add_product<T, tile, dim>(dq, gradients, k, stride, room);
  }
  commit_copies();
  wait_for_copies<0>();
  write_rows<T, tile>(args.dq, dq, problem.queries, sequence, begin, end, head, problem.heads,
                      problem.head_dim, 0);
}

template <class T, int dim>
void run_backward(const OpContext& context, const AttentionArgs& args) {
  constexpr int tile = tile_rows_of<T, dim>;
  const AttentionShape& shape = args.shape;
  Backward<T> all{problem_of<T>(args),
                  args.out.elements<T>(),
                  args.logsumexp.elements<float>(),
                  args.d_out.elements<T>(),
                  args.dq.elements<T>(),
                  args.dk.elements<T>(),
                  args.dv.elements<T>(),
                  nullptr};
  all.problem.wide = all.problem.wide && all_aligned({args.d_out.data, args.out.data});
  const std::int64_t count = args.logsumexp.numel();
  if (args.logsumexp.bytes() <= scratch_bytes_per_thread) {
    all.mean = reinterpret_cast<float*>(context.scratch);
    constexpr int each = block_threads / 8;
    const Grid grid{blocks_for(count, each, 0x7fffffff), dim3(block_threads)};
    with_width<T>(shape.head_dim, {args.d_out.data, args.out.data}, [&](auto width) {
      launch(mean_kernel<T, width()>, grid, stream_of(context), all, count);
    });
  }
  const auto tiles = [](std::int64_t length) {
    return static_cast<unsigned>((length + tile - 1) / tile);
  };
  const auto sequences = static_cast<unsigned>(shape.sequences);
  constexpr int parts = dim / part_columns<dim>;
  launch(keys_kernel<T, dim>,
         {dim3(static_cast<unsigned>(shape.kv_heads * parts), sequences, tiles(shape.key_length)),
          dim3(2 * tile), tiles_bytes<T, dim>(2 + 2 * query_stages<T, dim>)},
         stream_of(context), all);
  launch(queries_kernel<T, dim>,
         {dim3(static_cast<unsigned>(shape.heads), sequences, tiles(shape.query_length)),
          dim3(2 * tile), tiles_bytes<T, dim>(4)},
         stream_of(context), all);
}

}  // namespace

void attention_backward(const OpContext& context, const AttentionArgs& args) {
  with_element_type(args.q.dtype, [&](auto element) {
    using T = decltype(element);
    with_head_size(args.shape.head_dim,
                   [&](auto dim) { run_backward<T, decltype(dim)::value>(context, args); });
  });
}

}  // namespace trainctl::cuda
