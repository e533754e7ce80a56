// Kernels that move, scale or sum rows: blocks of bytes, rows for experts, embeddings, bias
// gradients.

#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"
#include "ops/rows.h"

namespace trainctl::cuda {
namespace {

/// A unit of 16 bytes for copies.
struct alignas(16) Sixteen {
  std::uint32_t words[4];
};

/// Writes elements of y in order, from blocks [column][row] of `width` Units.
template <class Unit>
struct SwapWork {
  const Unit* x;
  Unit* y;
  std::int64_t rows, columns, width;

  template <int>
  __device__ void run(std::int64_t at) const {
    const std::int64_t block = at / width;
    const std::int64_t column = block / rows;
    const std::int64_t row = block % rows;
    y[at] = x[(row * columns + column) * width + at % width];
  }
};

template <class T>
struct SpreadWork {
  const T* x;
  const std::int32_t* slot;
  T* y;
  std::int64_t features, choices;

  /// `at` is the index of an element of [tokens, choices, features].
  template <int width>
  __device__ void run(std::int64_t at) const {
    const std::int64_t choice = at / features;
    const std::int64_t row = slot[choice];
    if (row < 0) return;
    float value[width];
    load<width>(x + choice / choices * features + at % features, value);
    store<width>(y + row * features + at % features, value);
  }
};

template <class T>
struct CollectWork {
  const T* x;
  const std::int32_t* slot;
  T* y;
  std::int64_t features, choices;

  template <int width>
  __device__ void run(std::int64_t at) const {
    const std::int64_t token = at / features;
    float sum[width] = {};
    for (std::int64_t j = 0; j < choices; ++j) {
      const std::int64_t row = slot[token * choices + j];
      if (row < 0) continue;
      float value[width];
      load<width>(x + row * features + at % features, value);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += value[i];
    }
    store<width>(y + at, sum);
  }
};

__device__ inline float row_factor(float weight, bool sigmoid) {
  return sigmoid ? 1.0F / (1.0F + expf(-weight)) : weight;
}

template <class T>
struct ScaleWork {
  const T* x;
  const float* weight;
  T* y;
  std::int64_t features;
  bool sigmoid;

  template <int width>
  __device__ void run(std::int64_t at) const {
    const float factor = row_factor(weight[at / features], sigmoid);
    float value[width];
    load<width>(x + at, value);
#pragma unroll
    for (int i = 0; i < width; ++i) value[i] *= factor;
    store<width>(y + at, value);
  }
};

template <class T>
struct ScaleBackward {
  const T* x;
  const float* weight;
  const T* dy;
  T* dx;
  float* d_weight;
  std::int64_t rows, features;
  bool sigmoid;
};

/// One warp per row.
template <class T, int width>
__global__ void __launch_bounds__(block_threads) scale_backward_kernel(ScaleBackward<T> args) {
  const std::int64_t row = grid_thread() / 32;
  if (row >= args.rows) return;
  const std::int64_t start = row * args.features;
  const float factor = row_factor(args.weight[row], args.sigmoid);
  float dot = 0;
  for (std::int64_t at = threadIdx.x % 32 * width; at < args.features; at += 32 * width) {
    float x[width];
    float dy[width];
    load<width>(args.x + start + at, x);
    load<width>(args.dy + start + at, dy);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      dot += dy[i] * x[i];
      dy[i] *= factor;
    }
    store<width>(args.dx + start + at, dy);
  }
  dot = warp_sum(dot);
  if (threadIdx.x % 32 == 0) {
    args.d_weight[row] = args.sigmoid ? dot * factor * (1.0F - factor) : dot;
  }
}

template <class T>
struct BiasWork {
  T* y;
  const float* weight;
  const float* bias;
  std::int64_t features;

  template <int width>
  __device__ void run(std::int64_t at) const {
    const float factor = weight[at / features];
    float value[width];
    float more[width];
    load<width>(y + at, value);
    load<width>(bias + at % features, more);
#pragma unroll
    for (int i = 0; i < width; ++i) value[i] += factor * more[i];
    store<width>(y + at, value);
  }
};

/// d_weight[row] += dy[row] . bias; one warp per row.
template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    bias_dot_kernel(const T* dy, const float* bias, std::int64_t rows, std::int64_t features,
                    float* d_weight) {
  const std::int64_t row = grid_thread() / 32;
  if (row >= rows) return;
  float dot = 0;
  for (std::int64_t at = threadIdx.x % 32 * width; at < features; at += 32 * width) {
    float x[width];
    float b[width];
    load<width>(dy + row * features + at, x);
    load<width>(bias + at, b);
#pragma unroll
    for (int i = 0; i < width; ++i) dot += x[i] * b[i];
  }
  dot = warp_sum(dot);
  if (threadIdx.x % 32 == 0) d_weight[row] += dot;
}

/// strips[strip][column] = sum of the strip's rows, multiplied by `weight` unless it is null. A
/// block has 32 lanes of `width` columns, and eight rows at a time.
template <class T, int width>
__global__ void __launch_bounds__(256)
    sum_rows_kernel(const T* x, const float* weight, std::int64_t rows, std::int64_t columns,
                    float* strips) {
  struct Parts;
  float* parts = static_shared<Parts, float, 256 * width>();
  const std::int64_t column = (std::int64_t{blockIdx.x} * 32 + threadIdx.x) * width;
  const std::int64_t end = rows * (blockIdx.y + 1) / gridDim.y;
  float sum[width] = {};
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t row = rows * blockIdx.y / gridDim.y + threadIdx.y; row < end; row += 8) {
      float value[width];
      load<width>(x + row * columns + column, value);
      const float factor = weight != nullptr ? weight[row] : 1.0F;
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += factor * value[i];
    }
  }
#pragma unroll
  for (int i = 0; i < width; ++i) parts[(i * 8 + threadIdx.y) * 32 + threadIdx.x] = sum[i];
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int i = 0; i < width; ++i) {
    float total = 0;
    for (int part = 0; part < 8; ++part) total += parts[(i * 8 + part) * 32 + threadIdx.x];
    strips[std::int64_t{blockIdx.y} * columns + column + i] = total;
  }
}

/// Adds the sum of x's rows, multiplied by `weight` unless it is null, to `sum`.
template <class T, int width>
void sum_rows(const OpContext& context, const Tensor& x, const float* weight, float* sum) {
  const std::int64_t rows = x.rows();
  const std::int64_t columns = x.columns();
  constexpr std::int64_t min_rows = 32;  // four per thread
  const std::int64_t strips = strips_for(rows, columns, min_rows);
  auto* partial = reinterpret_cast<float*>(context.scratch);
  Grid grid{blocks_for(columns, 32 * width, 0x7fffffff), dim3(32, 8)};
  grid.blocks.y = static_cast<unsigned>(strips);
  launch(sum_rows_kernel<T, width>, grid, stream_of(context), x.elements<T>(), weight, rows,
         columns, partial);
  add_strips(context, partial, strips, columns, sum);
}

template <class Unit>
struct CopyRowsWork {
  const Unit* x;
  Unit* y;
  std::int64_t length, x_step, y_step;

  template <int width>
  __device__ void run(std::int64_t at) const {
    const std::int64_t row = at / length;
    const std::int64_t place = at - row * length;
    y[row * y_step + place] = x[row * x_step + place];
  }
};

template <class Unit>
void copy_units(const OpContext& context, const CopyRows& args) {
  for_elements<1>(
      context, args.rows * args.length, false,
      CopyRowsWork<Unit>{static_cast<const Unit*>(args.x.data), static_cast<Unit*>(args.y.data),
                         args.length, args.x_step, args.y_step});
}

template <class Unit>
void swap_units(const OpContext& context, const SwapBlocks& args, std::int64_t block_bytes) {
  const std::int64_t units = args.x.bytes() / std::int64_t{sizeof(Unit)};
  for_elements<1>(
      context, units, false,
      SwapWork<Unit>{static_cast<const Unit*>(args.x.data), static_cast<Unit*>(args.y.data),
                     args.rows, args.columns, block_bytes / std::int64_t{sizeof(Unit)}});
}

}  // namespace

void swap_blocks(const OpContext& context, const SwapBlocks& args) {
  const std::int64_t block_bytes = args.x.bytes() / (args.rows * args.columns);
  const auto places = reinterpret_cast<std::uintptr_t>(args.x.data) |
                      reinterpret_cast<std::uintptr_t>(args.y.data) |
                      static_cast<std::uintptr_t>(block_bytes);
  if (places % 16 == 0) {
    swap_units<Sixteen>(context, args, block_bytes);
  } else if (places % 4 == 0) {
    swap_units<std::uint32_t>(context, args, block_bytes);
  } else if (places % 2 == 0) {
    swap_units<std::uint16_t>(context, args, block_bytes);
  } else {
    swap_units<std::uint8_t>(context, args, block_bytes);
  }
}

void copy_rows(const OpContext& context, const CopyRows& args) {
  switch (size_of(args.x.dtype)) {
    case 8: return copy_units<std::uint64_t>(context, args);
    case 4: return copy_units<std::uint32_t>(context, args);
    case 2: return copy_units<std::uint16_t>(context, args);
    default: return copy_units<std::uint8_t>(context, args);
  }
}

void bias_gradient(const OpContext& context, const BiasGradient& args) {
  if (args.dy.numel() == 0) return;
  with_element_type(args.dy.dtype, [&](auto element) {
    using T = decltype(element);
    with_width<T>(args.dy.columns(), {args.dy.data}, [&](auto width) {
      sum_rows<T, width()>(context, args.dy, nullptr, args.db.elements<float>());
    });
  });
}

void spread_rows(const OpContext& context, const MoveRows& args) {
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t features = args.x.shape[1];
    const bool wide = whole_packs<T>(features, {args.x.data, args.y.data});
    for_elements<vector_width<T>>(
        context, args.slot.numel() * features, wide,
        SpreadWork<T>{args.x.elements<T>(), args.slot.elements<std::int32_t>(),
                      args.y.elements<T>(), features, args.slot.shape[1]});
  });
}

void collect_rows(const OpContext& context, const MoveRows& args) {
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t features = args.y.shape[1];
    const bool wide = whole_packs<T>(features, {args.x.data, args.y.data});
    for_elements<vector_width<T>>(
        context, args.y.numel(), wide,
        CollectWork<T>{args.x.elements<T>(), args.slot.elements<std::int32_t>(),
                       args.y.elements<T>(), features, args.slot.shape[1]});
  });
}

void scale_rows(const OpContext& context, const ScaleRows& args) {
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t features = args.x.shape[1];
    const bool wide = whole_packs<T>(features, {args.x.data, args.y.data});
    for_elements<vector_width<T>>(context, args.x.numel(), wide,
                                  ScaleWork<T>{args.x.elements<T>(), args.weight.elements<float>(),
                                               args.y.elements<T>(), features, args.sigmoid});
  });
}

void scale_rows_backward(const OpContext& context, const ScaleRows& args) {
  if (args.x.shape[0] == 0) return;
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t rows = args.x.shape[0];
    const std::int64_t features = args.x.shape[1];
    const ScaleBackward<T> all{args.x.elements<T>(),
                               args.weight.elements<float>(),
                               args.dy.elements<T>(),
                               args.dx.elements<T>(),
                               args.d_weight.elements<float>(),
                               rows,
                               features,
                               args.sigmoid};
    const Grid grid{blocks_for(rows, block_threads / 32, 0x7fffffff), dim3(block_threads)};
    with_width<T>(features, {args.x.data, args.dy.data, args.dx.data}, [&](auto width) {
      launch(scale_backward_kernel<T, width()>, grid, stream_of(context), all);
    });
  });
}

void bias_rows(const OpContext& context, const BiasRows& args) {
  with_element_type(args.y.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t features = args.y.shape[1];
    const bool wide = whole_packs<T>(features, {args.y.data, args.bias.data});
    for_elements<vector_width<T>>(context, args.y.numel(), wide,
                                  BiasWork<T>{args.y.elements<T>(), args.weight.elements<float>(),
                                              args.bias.elements<float>(), features});
  });
}

void bias_rows_backward(const OpContext& context, const BiasRows& args) {
  if (args.dy.shape[0] == 0) return;
  with_element_type(args.dy.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t rows = args.dy.shape[0];
    const std::int64_t features = args.dy.shape[1];
    with_width<T>(features, {args.dy.data, args.bias.data}, [&](auto width) {
      sum_rows<T, width()>(context, args.dy, args.weight.elements<float>(),
                           args.d_bias.elements<float>());
      if (args.d_weight.empty()) return;
      const Grid grid{blocks_for(rows, block_threads / 32, 0x7fffffff), dim3(block_threads)};
      launch(bias_dot_kernel<T, width()>, grid, stream_of(context), args.dy.elements<T>(),
             args.bias.elements<float>(), rows, features, args.d_weight.elements<float>());
    });
  });
}

// Embedding rows. In backward, a block owns some columns of every n-th row, for n blocks: it
// searches all indices and adds the gradients of its tokens in order, so that sums have a fixed
// order without atomics or sorting. Frequent tokens have neighbouring rows in a table, so this
// gives them to different blocks.
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

/// Finds this block's tokens among the next block_threads ones, in order. Returns their number, and
/// the token and row of each in `found`.
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
  const int at = block_rank(mine, count);  // waits until all threads have used the previous tokens
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
  constexpr std::int64_t max_shares = 1024;
  Grid grid{blocks_for(args.rows, 1, max_shares), dim3(block_threads)};
  grid.blocks.y = blocks_for(args.hidden, std::int64_t{block_threads} * width).x;
  launch(scatter_kernel<T, width>, grid, stream_of(context), args);
}

}  // namespace

void embedding_forward(const OpContext& context, const EmbeddingArgs& args) {
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

void embedding_backward(const OpContext& context, const EmbeddingArgs& args) {
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
