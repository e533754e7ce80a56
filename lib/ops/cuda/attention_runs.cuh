// TokenRuns as parameters of attention kernels: rows and positions of tokens.
#pragma once

#include "ops/attention.h"
#include "ops/cuda/block.cuh"

namespace trainctl::cuda {

inline constexpr int max_runs = 128;
inline constexpr int no_position = 0x7fffffff;  // position of padding keys, which no query sees

/// The smallest and the largest position of some tokens.
struct Span {
  int first, last;
};

/// TokenRuns in a form for kernel parameters.
struct Runs {
  int length, stride, count;
  struct {
    int position, row;
  } run[max_runs];

  /// Throws Error{unavailable} if there are more than max_runs runs.
  static Runs of(const TokenRuns& runs);
  __device__ std::int64_t row(int token, int sequence) const {
    return run[token / length].row + std::int64_t{sequence} * stride + token % length;
  }
  __device__ int position(int token) const { return run[token / length].position + token % length; }
  /// Whether tokens [begin, end) have consecutive rows.
  __device__ bool together(int begin, int end) const {
    return begin / length == (end - 1) / length;
  }
  __device__ Span span(int begin, int end) const {
    Span all{no_position, -1};
    for (int at = begin / length; at * length < end; ++at) {
      const int start = run[at].position - at * length;
      all.first = min(all.first, start + max(begin, at * length));
      all.last = max(all.last, start + min(end, (at + 1) * length) - 1);
    }
    return all;
  }
};

/// The row of the query to which element `statistic` of the logsumexp belongs.
__device__ inline std::int64_t row_of(const Runs& queries, std::int64_t statistic, int query_length,
                                      int heads) {
  const int query = static_cast<int>(statistic % query_length);
  const int sequence = static_cast<int>(statistic / query_length / heads);
  return queries.row(query, sequence);
}

/// The index of the first element for that query and head in a tensor of queries.
__device__ inline std::int64_t elements_of(const Runs& queries, std::int64_t statistic,
                                           int query_length, int heads, int head_dim) {
  const int head = static_cast<int>(statistic / query_length % heads);
  return (row_of(queries, statistic, query_length, heads) * heads + head) * head_dim;
}

}  // namespace trainctl::cuda
