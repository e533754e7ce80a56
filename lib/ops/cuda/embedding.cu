// Embedding rows. Backward, a block owns rows that lie a grid apart and some columns: it
// looks through all indices and adds the gradients of its own tokens in their order, so that sums
// have the order of the tokens without atomics or a sort. Rows of frequent tokens lie side by side
// in a table; so they are of different blocks.
#include "ops/embedding.h"

#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"

namespace trainctl::cuda {
namespace {

template <class T>
struct GatherWork {
  const std::int32_t* indices;
  const T* table;
  T* y;
  std::int64_t first_row, rows, hidden;
  bool accumulate;

  template <int width>
  __device__ void run(std::int64_t at) const {
    const std::int64_t row = indices[at / hidden] - first_row;
    const bool here = row >= 0 && row < rows;
    if (!here && accumulate) return;
    float value[width] = {};
    if (here) load<width>(table + row * hidden + at % hidden, value);
    if (accumulate) {
      float before[width];
      load<width>(y + at, before);
#pragma unroll
      for (int i = 0; i < width; ++i) value[i] += before[i];
    }
    store<width>(y + at, value);
  }
};

template <class T>
struct Scatter {
  const std::int32_t* indices;
  const T* dy;
  float* dtable;
  std::int64_t tokens, first_row, rows, hidden;
};

/// A block's tokens among the next block_threads ones, in their order: their number, and for each
/// its token and row in `found`.
struct Found {
  std::int32_t token, row;
};
template <class T>
__device__ int find_tokens(const Scatter<T>& args, std::int64_t begin, Found* found) {
  const std::int64_t token = begin + threadIdx.x;
  const std::int64_t row = token < args.tokens ? args.indices[token] - args.first_row : -1;
  const bool mine =
      row >= 0 && row < args.rows && static_cast<std::uint32_t>(row) % gridDim.x == blockIdx.x;
  int count = 0;
  const int at = block_rank(mine, count);  // once all threads are done with those found before
  if (mine) found[at] = {static_cast<std::int32_t>(token), static_cast<std::int32_t>(row)};
  __syncthreads();
  return count;
}

template <class T, int width>
__global__ void __launch_bounds__(block_threads) scatter_kernel(Scatter<T> args) {
  struct List;
  Found* found = static_shared<List, Found, block_threads>();
  const std::int64_t column = (std::int64_t{blockIdx.y} * block_threads + threadIdx.x) * width;
  for (std::int64_t begin = 0; begin < args.tokens; begin += block_threads) {
    const int count = find_tokens(args, begin, found);
    for (int i = 0; i < count && column < args.hidden; ++i) {
      float gradient[width];
      float sum[width];
      float* to = args.dtable + found[i].row * args.hidden + column;
      load<width>(args.dy + found[i].token * args.hidden + column, gradient);
      load<width>(to, sum);
#pragma unroll
      for (int j = 0; j < width; ++j) sum[j] += gradient[j];
      store<width>(to, sum);
    }
  }
}

template <class T, int width>
void scatter(const OpContext& context, const Scatter<T>& args) {
  constexpr std::int64_t most_shares = 1024;
  Grid grid{blocks_for(args.rows, 1, most_shares), dim3(block_threads)};
  grid.blocks.y = blocks_for(args.hidden, std::int64_t{block_threads} * width).x;
  launch(scatter_kernel<T, width>, grid, stream_of(context), args);
}

}  // namespace

void embedding_forward(const OpContext& context, const EmbeddingForward& args) {
  with_element_type(args.table.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t hidden = args.table.columns();
    const bool wide = whole_packs<T>(hidden, {args.table.data, args.y.data});
    for_elements<vector_width<T>>(
        context, args.y.numel(), wide,
        GatherWork<T>{args.indices.elements<std::int32_t>(), args.table.elements<T>(),
                      args.y.elements<T>(), args.first_row, args.table.rows(), hidden,
                      args.accumulate});
  });
}

void embedding_backward(const OpContext& context, const EmbeddingBackward& args) {
  if (args.dy.numel() == 0 || args.dtable.numel() == 0) return;
  with_element_type(args.dy.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t hidden = args.dy.columns();
    const Scatter<T> all{args.indices.elements<std::int32_t>(),
                         args.dy.elements<T>(),
                         args.dtable.elements<float>(),
                         args.indices.numel(),
                         args.first_row,
                         args.dtable.rows(),
                         hidden};
    with_width<T>(hidden, {args.dy.data, args.dtable.data},
                  [&](auto width) { scatter<T, width()>(context, all); });
  });
}

}  // namespace trainctl::cuda
