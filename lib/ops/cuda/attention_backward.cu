// Attention backward from out and logsumexp (Dao 2023, FlashAttention-2, algorithm 2) in two passes
// that make the probabilities again: first dk and dv, a block to a tile of keys, then dq, a block
// to a tile of queries, so that every sum has one owner and a fixed order. dq may lie where d_out
// does.
#include "ops/cuda/attention_problem.cuh"
#include "ops/cuda/attention_sizes.cuh"
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
};

/// A tile of queries as the keys' gradients need it, in shared memory.
template <int tile>
struct QueryTile {
  float logsumexp[tile], mean[tile];  // mean: d_out . out
  int position[tile], first[tile];
  std::int64_t row[tile];
};

/// The part of a . b of one of two threads, which take packs of `width` elements in turns.
template <int width, class T>
__device__ float product_of(const T* a, const T* b, int half, int count) {
  float sum = 0;
#pragma unroll 1
  for (int i = half * width; i < count; i += 2 * width) {
    float x[width];
    float y[width];
    load<width>(a + i, x);
    load<width>(b + i, y);
#pragma unroll
    for (int j = 0; j < width; ++j) sum += x[j] * y[j];
  }
  return sum;
}

/// Two neighbouring threads take a query.
template <class T, int tile>
__device__ void look_at(QueryTile<tile>& queries, const Backward<T>& args, int sequence, int head,
                        int begin) {
  const AttentionProblem<T>& problem = args.problem;
  const int at = static_cast<int>(threadIdx.x / 2);
  const int half = static_cast<int>(threadIdx.x % 2);
  const int query = begin + at;
  const bool here = query < problem.query_length;
  const std::int64_t row = here ? problem.queries.row(query, sequence) : 0;
  const std::int64_t start = (row * problem.heads + head) * problem.head_dim;
  float mean = 0;
  if (here && problem.wide) {
    mean =
        product_of<vector_width<T>>(args.out + start, args.d_out + start, half, problem.head_dim);
  } else if (here) {
    mean = product_of<1>(args.out + start, args.d_out + start, half, problem.head_dim);
  }
  mean += __shfl_xor_sync(whole_warp, mean, 1);
  if (half != 0) return;
  const std::int64_t statistic =
      (std::int64_t{sequence} * problem.heads + head) * problem.query_length + query;
  queries.logsumexp[at] = here ? args.logsumexp[statistic] : 0.0F;
  queries.mean[at] = mean;
  queries.position[at] = here ? problem.queries.position(query) : -1;
  queries.first[at] = here ? problem.first_seen(row) : 0;
  queries.row[at] = row;
}

/// The probability of a key after dropout, and the gradient of its score; 0 where it is not seen.
template <class T, int tile>
__device__ void link(const AttentionProblem<T>& problem, const QueryTile<tile>& queries, int query,
                     int key_position, int head, const Philox& random, float& score,
                     float& gradient) {
  const bool seen = key_position <= queries.position[query] && key_position >= queries.first[query];
  const float chance =
      seen ? exponential<T>(score * problem.scale - queries.logsumexp[query]) : 0.0F;
  const float factor = seen && problem.state != nullptr
                           ? problem.factor(random, queries.row[query], head, key_position)
                           : 1.0F;
  score = chance * factor;
  gradient = chance * (factor * gradient - queries.mean[query]) * problem.scale;
}

/// One tile of a block's own tokens' gradient, into rows of `to`.
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

/// Columns of dk and dv that one block makes: registers hold no more.
template <int dim>
inline constexpr int part_columns = dim > 128 ? 128 : dim;

template <class T, int dim>
__global__ void __launch_bounds__(2 * tile_rows_of<T, dim>)
    keys_kernel(const __grid_constant__ Backward<T> args) {
  constexpr int tile = tile_rows_of<T, dim>;
  constexpr int stride = tile_stride<T>(dim);
  constexpr int columns = part_columns<dim>;
  constexpr int parts = dim / columns;
  using Scores = Fragment<T, tile>;
  const AttentionProblem<T>& problem = args.problem;
  T* k = dynamic_shared<T>();
  T* v = k + tile * stride;
  T* q = v + tile * stride;
  T* d_out = q + tile * stride;
  T* room = d_out + tile * stride;
  struct Tile;
  QueryTile<tile>& queries = *static_shared<Tile, QueryTile<tile>, 1>();

  const int begin = static_cast<int>(blockIdx.x) * tile;
  const int end = min(problem.key_length, begin + tile);
  const int kv_head = static_cast<int>(blockIdx.y) / parts;
  const int first_column = static_cast<int>(blockIdx.y) % parts * columns;
  const int sequence = static_cast<int>(blockIdx.z);
  const int group = problem.heads / problem.kv_heads;
  const Philox random = problem.random();
  int position[Scores::rows];
#pragma unroll
  for (int i = 0; i < Scores::rows; ++i) {
    const int key = begin + Scores::row(i);
    position[i] = key < end ? problem.keys.position(key) : no_position;
  }
  bring<T, tile, dim>(k, problem.k, problem.wide, problem.keys, sequence, begin, end, kv_head,
                      problem.kv_heads, problem.head_dim);
  bring<T, tile, dim>(v, problem.v, problem.wide, problem.keys, sequence, begin, end, kv_head,
                      problem.kv_heads, problem.head_dim);
  Fragment<T, columns> dk;
  Fragment<T, columns> dv;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int query = 0; query < problem.query_length; query += tile) {
      const int query_end = min(problem.query_length, query + tile);
      if (!problem.may_see(query, query_end, begin, end)) continue;
      bring<T, tile, dim>(q, problem.q, problem.wide, problem.queries, sequence, query, query_end,
                          head, problem.heads, problem.head_dim);
      bring<T, tile, dim>(d_out, args.d_out, problem.wide, problem.queries, sequence, query,
                          query_end, head, problem.heads, problem.head_dim);
      commit_copies();
      look_at(queries, args, sequence, head, query);
      wait_for_copies<0>();
      __syncthreads();
      Scores scores = multiply_rows<T, tile, dim>(k, q);
      Scores gradients = multiply_rows<T, tile, dim>(v, d_out);
#pragma unroll
      for (int i = 0; i < Scores::rows; ++i) {
#pragma unroll
        for (int j = 0; j < Scores::own; ++j) {
          link(problem, queries, Scores::column(j), position[i], head, random, scores.at(i, j),
               gradients.at(i, j));
        }
      }
      add_product<T, tile, columns>(dv, scores, d_out + first_column, stride, room);
      add_product<T, tile, columns>(dk, gradients, q + first_column, stride, room);
      __syncthreads();  // the next queries come where these are
    }
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
  QueryTile<tile>& queries = *static_shared<Tile, QueryTile<tile>, 1>();
  struct Positions;
  int* key_position = static_shared<Positions, int, tile>();

  const int begin = static_cast<int>(gridDim.x - 1 - blockIdx.x) * tile;
  const int end = min(problem.query_length, begin + tile);
  const int head = static_cast<int>(blockIdx.y);
  const int sequence = static_cast<int>(blockIdx.z);
  const int kv_head = problem.kv_head(head);
  const Philox random = problem.random();
  bring<T, tile, dim>(q, problem.q, problem.wide, problem.queries, sequence, begin, end, head,
                      problem.heads, problem.head_dim);
  bring<T, tile, dim>(d_out, args.d_out, problem.wide, problem.queries, sequence, begin, end, head,
                      problem.heads, problem.head_dim);
  look_at(queries, args, sequence, head, begin);
  Fragment<T, dim> dq;
  for (int key = 0; key < problem.key_length; key += tile) {
    const int key_end = min(problem.key_length, key + tile);
    if (!problem.may_see(begin, end, key, key_end)) continue;
    bring<T, tile, dim>(k, problem.k, problem.wide, problem.keys, sequence, key, key_end, kv_head,
                        problem.kv_heads, problem.head_dim);
    bring<T, tile, dim>(v, problem.v, problem.wide, problem.keys, sequence, key, key_end, kv_head,
                        problem.kv_heads, problem.head_dim);
    commit_copies();
    if (threadIdx.x < tile) {
      const int at = key + static_cast<int>(threadIdx.x);
      key_position[threadIdx.x] = at < key_end ? problem.keys.position(at) : no_position;
    }
    wait_for_copies<0>();
    __syncthreads();
    Scores scores = multiply_rows<T, tile, dim>(q, k);
    Scores gradients = multiply_rows<T, tile, dim>(d_out, v);
#pragma unroll
    for (int i = 0; i < Scores::rows; ++i) {
#pragma unroll
      for (int j = 0; j < Scores::own; ++j) {
        link(problem, queries, Scores::row(i), key_position[Scores::column(j)], head, random,
             scores.at(i, j), gradients.at(i, j));
      }
    }
    add_product<T, tile, dim>(dq, gradients, k, stride, room);
    __syncthreads();  // the next keys come where these are
  }
  commit_copies();
  wait_for_copies<0>();
  write_rows<T, tile>(args.dq, dq, problem.queries, sequence, begin, end, head, problem.heads,
                      problem.head_dim, 0);
}

template <class T, int dim>
void run_backward(const OpContext& context, const AttentionBackward& args) {
  constexpr int tile = tile_rows_of<T, dim>;
  const AttentionShape& shape = args.shape;
  Backward<T> all{
      problem_of<T>(args),      args.out.elements<T>(), args.logsumexp.elements<float>(),
      args.d_out.elements<T>(), args.dq.elements<T>(),  args.dk.elements<T>(),
      args.dv.elements<T>()};
  all.problem.wide = all.problem.wide && all_aligned({args.d_out.data, args.out.data});
  const auto tiles = [](std::int64_t length) {
    return static_cast<unsigned>((length + tile - 1) / tile);
  };
  const auto sequences = static_cast<unsigned>(shape.sequences);
  constexpr int parts = dim / part_columns<dim>;
  const std::size_t shared = tiles_bytes<T, dim>(4);
  launch(keys_kernel<T, dim>,
         {dim3(tiles(shape.key_length), static_cast<unsigned>(shape.kv_heads * parts), sequences),
          dim3(2 * tile), shared},
         stream_of(context), all);
  launch(queries_kernel<T, dim>,
         {dim3(tiles(shape.query_length), static_cast<unsigned>(shape.heads), sequences),
          dim3(2 * tile), shared},
         stream_of(context), all);
}

}  // namespace

void attention_backward(const OpContext& context, const AttentionBackward& args) {
  with_element_type(args.q.dtype, [&](auto element) {
    using T = decltype(element);
    with_head_size(args.shape.head_dim,
                   [&](auto dim) { run_backward<T, decltype(dim)::value>(context, args); });
  });
}

}  // namespace trainctl::cuda
