// Attention forward: a block takes a tile of queries of one head and iterates over tiles of keys
// with an online softmax (Dao 2023, FlashAttention-2, algorithm 1). Values are loaded while scores
// are computed.
#include <string>

#include "base/error.h"
#include "base/integers.h"
#include "ops/cuda/attention_problem.cuh"
#include "ops/cuda/attention_tiles.cuh"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"

namespace trainctl::cuda {

Runs Runs::of(const TokenRuns& runs) {
  require(runs.count() <= max_runs, ExitCode::unavailable,
          "[attention] " + std::to_string(runs.count()) +
              " runs of tokens; on cuda there are at most " + std::to_string(max_runs));
  Runs result{static_cast<int>(runs.length),
              static_cast<int>(runs.stride),
              static_cast<int>(runs.count()),
              {}};
  for (int i = 0; i < result.count; ++i) {
    result.run[i] = {static_cast<int>(runs.at(i).position), static_cast<int>(runs.at(i).row)};
  }
  return result;
}

namespace {

template <class T>
struct Forward {
  AttentionProblem<T> problem;
  T* out;
  float* logsumexp;
  unsigned* largest;         // may be null
  const std::uint8_t* real;  // per query; may be null
};

/// The rows and positions of a thread's queries.
template <int rows>
struct Queries {
  std::int64_t row[rows];
  int position[rows], first[rows];  // sees keys in [first, position]; none if padding

  template <class T>
  __device__ Queries(const AttentionProblem<T>& problem, int sequence, int begin, const int* own) {
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const int query = begin + own[i];
      const bool here = query < problem.query_length;
      row[i] = here ? problem.queries.row(query, sequence) : 0;
      position[i] = here ? problem.queries.position(query) : -1;
      first[i] = here ? problem.first_seen(row[i], position[i]) : 0;
    }
  }
};

/// Replaces scores by exponentials relative to the highest score so far, and rescales earlier sums.
template <class T, int tile, int dim>
__device__ void softmax_tile(Fragment<T, tile>& scores, Fragment<T, dim>& out, float scale,
                             float (&highest)[Fragment<T, tile>::rows],
                             float (&sum)[Fragment<T, tile>::rows]) {
#pragma unroll
  for (int i = 0; i < scores.rows; ++i) {
    float most = highest[i];
#pragma unroll
    for (int j = 0; j < scores.own; ++j) most = fmaxf(most, scores.at(i, j));
    most = scores.row_max(most);
    const float base = most == -INFINITY ? 0.0F : most * scale;  // a query has seen no key
    const float rescale = exponential<T>(highest[i] * scale - base);
    highest[i] = most;
    sum[i] *= rescale;
#pragma unroll
    for (int j = 0; j < out.own; ++j) out.at(i, j) *= rescale;
#pragma unroll
    for (int j = 0; j < scores.own; ++j) {
      scores.at(i, j) = exponential<T>(scores.at(i, j) * scale - base);
      sum[i] += scores.at(i, j);
    }
  }
}

template <class T, int dim>
__global__ void __launch_bounds__(2 * tile_rows_of<T, dim>)
    attention_kernel(const __grid_constant__ Forward<T> args) {
  constexpr int tile = tile_rows_of<T, dim>;
  constexpr int stride = tile_stride<T>(dim);
  using Scores = Fragment<T, tile>;
  const AttentionProblem<T>& problem = args.problem;
  T* q = dynamic_shared<T>();
  T* k = q + tile * stride;
  T* v = k + tile * stride;
  T* room = v + tile * stride;
  struct Positions;
  int* key_position = static_shared<Positions, int, tile>();

  const int head = static_cast<int>(blockIdx.x);
  const int sequence = static_cast<int>(blockIdx.y);
  const int kv_head = problem.kv_head(head);
  // The last queries see the most keys, so their blocks start first.
  const int begin = static_cast<int>(gridDim.z - 1 - blockIdx.z) * tile;
  const int end = min(problem.query_length, begin + tile);
  const Sight sight = problem.sight(sequence, begin, end);
  const Philox random = problem.random();
  const bool drops = problem.state != nullptr;
  // With a cap, scores are stored in units of the cap.
  const float unit = problem.cap > 0 ? problem.cap : problem.scale;
  const float scale = unit * exponent_unit<T>;
  int own[Scores::rows];
#pragma unroll
  for (int i = 0; i < Scores::rows; ++i) own[i] = Scores::row(i);
  const Queries<Scores::rows> queries(problem, sequence, begin, own);

  Fragment<T, dim> out;
  float highest[Scores::rows];
  float sum[Scores::rows] = {};
#pragma unroll
  for (float& one : highest) one = -INFINITY;
  bring<T, tile, dim>(q, problem.q, problem.wide, problem.queries, sequence, begin, end, head,
                      problem.heads, problem.head_dim);
  int key = problem.next_seen(sight, 0, tile);
  if (key < problem.key_length)
    bring_keys<T, tile, dim>(k, problem.k, problem, sequence, key, kv_head);
  while (key < problem.key_length) {
    const int key_end = min(problem.key_length, key + tile);
    const bool all_seen =
        problem.all_seen(sight, problem.keys.span(key, key_end), key_end - key == tile);
    if (!all_seen || drops) place_keys<tile>(key_position, problem, key);
    wait_for_copies<0>();
    __syncthreads();  // the keys have arrived, and products of the last values are done
    bring_keys<T, tile, dim>(v, problem.v, problem, sequence, key, kv_head);
    Scores scores = multiply_rows<T, tile, dim>(q, k);
    if (problem.cap > 0) {
#pragma unroll
      for (int j = 0; j < Scores::own; ++j) {
#pragma unroll
        for (int i = 0; i < Scores::rows; ++i) {
          scores.at(i, j) = problem.part_of_cap(scores.at(i, j));
        }
      }
    }
    if (!all_seen) {
#pragma unroll
      for (int j = 0; j < Scores::own; ++j) {
        const int at = key_position[Scores::column(j)];
#pragma unroll
        for (int i = 0; i < Scores::rows; ++i) {
          const bool seen = at <= queries.position[i] && at >= queries.first[i];
          scores.at(i, j) = seen ? scores.at(i, j) : -INFINITY;
        }
      }
    }
    softmax_tile<T, tile, dim>(scores, out, scale, highest, sum);
    if (drops) {
      const std::uint32_t kept = kept_by_dropout<Scores>(
          problem, random, head,
          [&](int i, int) {
            return problem.queries.row(min(begin + Scores::row(i), end - 1), sequence);
          },
          [&](int, int j) { return key_position[Scores::column(j)]; });
#pragma unroll
      for (int i = 0; i < Scores::rows; ++i) {
#pragma unroll
        for (int j = 0; j < Scores::own; ++j) {
          scores.at(i, j) *= problem.factor(kept >> (Scores::own * i + j) & 1);
        }
      }
    }
    wait_for_copies<0>();
    __syncthreads();  // the values have arrived, and products of the keys are done
    key = problem.next_seen(sight, key + tile, tile);
    if (key < problem.key_length)
      bring_keys<T, tile, dim>(k, problem.k, problem, sequence, key, kv_head);
    add_product<T, tile, dim>(out, scores, v, stride, room);
  }
  commit_copies();
  wait_for_copies<0>();

#pragma unroll
  for (int i = 0; i < Scores::rows; ++i) {
    const float total = Scores::row_sum(sum[i]);
    const float inverse = total > 0 ? 1.0F / total : 0.0F;
    const int query = begin + own[i];
    if (query >= end) continue;
    T* to = args.out + (queries.row[i] * problem.heads + head) * problem.head_dim;
#pragma unroll
    for (int j = 0; j < out.own; ++j) {
      const int column = out.column(j);
      if (column < problem.head_dim) to[column] = narrow<T>(out.at(i, j) * inverse);
    }
    if (threadIdx.x % Scores::lanes == 0) {
      args.logsumexp[(std::int64_t{sequence} * problem.heads + head) * problem.query_length +
                     query] = total > 0 ? highest[i] * unit + logf(total) : -INFINITY;
      const bool counts = args.real == nullptr || args.real[queries.row[i]] != 0;
      if (args.largest != nullptr && counts) {
        atomicMax(args.largest + head, ordered_key(highest[i] * problem.scale));
      }
    }
  }
}

template <class T, int dim>
void run_forward(const OpContext& context, const AttentionArgs& args) {
  constexpr int tile = tile_rows_of<T, dim>;
  const AttentionShape& shape = args.shape;
  const Forward<T> all{problem_of<T>(args), args.out.elements<T>(),
                       args.logsumexp.elements<float>(), static_cast<unsigned*>(args.largest.data),
                       static_cast<const std::uint8_t*>(args.real.data)};
  const Grid grid{dim3(static_cast<unsigned>(shape.heads), static_cast<unsigned>(shape.sequences),
                       static_cast<unsigned>((shape.query_length + tile - 1) / tile)),
                  dim3(2 * tile), tiles_bytes<T, dim>(3)};
  launch(attention_kernel<T, dim>, grid, stream_of(context), all);
}

}  // namespace

void attention_forward(const OpContext& context, const AttentionArgs& args) {
  require(args.largest.empty() || args.shape.cap == 0, ExitCode::unavailable,
          "[attention] the largest scores before a cap are not taken on cuda");
  with_element_type(args.q.dtype, [&](auto element) {
    using T = decltype(element);
    with_head_size(args.shape.head_dim,
                   [&](auto dim) { run_forward<T, decltype(dim)::value>(context, args); });
  });
}

}  // namespace trainctl::cuda
