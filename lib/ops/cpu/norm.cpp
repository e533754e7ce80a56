#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/scratch.h"
#include "ops/context.h"
#include "ops/cpu/kernels.h"
#include "ops/elements.h"

namespace trainctl {

// The addition of the residual to a row, before either norm reads it.

/// sum = factor * x + residual, rounded to T, as the norm then reads it.
template <class T>
void add_residual(const T* x, float factor, const T* residual, T* sum, std::int64_t hidden) {
#pragma omp simd
  for (std::int64_t i = 0; i < hidden; ++i) {
    sum[i] = from_float<T>(factor * to_float(x[i]) + to_float(residual[i]));
  }
}

// Sums over the rows of a matrix, for the gradients of norm weights: fixed blocks of rows are
// summed into scratch, then the blocks are added in order. The blocks depend only on the shape, so
// results are bit-identical for any number of threads. Internal to lib/ops.

/// Blocks of rows, each with an fp32 vector of `width` sums in scratch, initially zero.
struct RowPartials {
  std::int64_t rows, width, blocks;
  float* sums;  // [blocks, width]

  RowPartials(const OpContext& context, std::int64_t row_count, std::int64_t vector_width)
      : rows(row_count),
        width(vector_width),
        blocks(std::clamp<std::int64_t>(
            std::min(row_count / 8, scratch_bytes_per_thread / (vector_width * 4)), 1, 32)),
        sums(reinterpret_cast<float*>(context.scratch)) {}

  std::int64_t begin(std::int64_t block) const { return rows * block / blocks; }
  std::int64_t grain() const {
    return std::max<std::int64_t>(1, row_grain(width) * blocks / std::max<std::int64_t>(1, rows));
  }

  /// Calls body(first_row, end_row, sums) for each block.
  template <class Body>
  void for_blocks(const Body& body) const {
    parallel_for(blocks, grain(), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = first; block < last; ++block) {
        float* mine = sums + block * width;
        std::fill(mine, mine + width, 0.0F);
        body(begin(block), begin(block + 1), mine);
      }
    });
  }

  /// target[i] += sum over blocks of sums[block][offset + i], i < count.
  void add_to(float* target, std::int64_t offset, std::int64_t count) const {
    parallel_for(count, row_grain(blocks), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = 0; block < blocks; ++block) {
        const float* from = sums + block * width + offset;
#pragma omp simd
        for (std::int64_t i = first; i < last; ++i) target[i] += from[i];
      }
    });
  }
};

namespace {

template <class T>
float mean_of(const T* x, std::int64_t hidden) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < hidden; ++i) total += to_float(x[i]);
  return total / static_cast<float>(hidden);
}

/// The mean of (x - mean)^2; RMSNorm uses mean = 0.
template <class T>
float variance_of(const T* x, float mean, std::int64_t hidden) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float centred = to_float(x[i]) - mean;
    total += centred * centred;
  }
  return total / static_cast<float>(hidden);
}

enum class Form : std::uint8_t { layer, rms, unweighted };
constexpr Form form_of(NormKind kind, const Tensor& weight) {
  return kind == NormKind::layer_norm ? Form::layer : weight.empty() ? Form::unweighted : Form::rms;
}

template <Form form, class T>
void forward(const NormForward& args) {
  constexpr bool layer = form == Form::layer;
  const std::int64_t hidden = args.x.columns();
  const float* weight = static_cast<const float*>(args.weight.data);
  const float* bias = static_cast<const float*>(args.bias.data);
  const float offset = weight_offset(args.zero_centered);
  parallel_for(args.x.rows(), row_grain(hidden), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const T* x = args.x.as<T>() + row * hidden;
      if (!args.residual.empty()) {
        T* sum = args.sum.as<T>() + row * hidden;
        add_residual(x, args.x_factor, args.residual.as<T>() + row * hidden, sum, hidden);
        x = sum;
      }
      const float mean = layer ? mean_of(x, hidden) : 0.0F;
      const float variance = args.sums.empty()
                                 ? variance_of(x, mean, hidden)
                                 : args.sums.as<float>()[row] / static_cast<float>(args.features);
      const float rstd = 1.0F / std::sqrt(variance + args.epsilon);
      if (layer) args.mean.as<float>()[row] = mean;
      args.rstd.as<float>()[row] = rstd;
      T* y = args.y.as<T>() + row * hidden;
#pragma omp simd
      for (std::int64_t i = 0; i < hidden; ++i) {
        if constexpr (layer) {
          y[i] = from_float<T>((to_float(x[i]) - mean) * rstd * (weight[i] + offset) + bias[i]);
        } else if constexpr (form == Form::rms) {
          y[i] = from_float<T>(to_float(x[i]) * rstd * (weight[i] + offset));
        } else {
          y[i] = from_float<T>(to_float(x[i]) * rstd);
        }
      }
    }
  });
}

template <class T>
struct BackwardRow {
  const T* dy;
  const T* x;
  const T* d_residual;  // may be null
  T* dx;
  float mean, rstd;
  float offset;  // added to the weights
  // If ranks divide the row: its sum over the ranks, and the number of features of the whole row.
  // Otherwise null and the columns of x.
  const float* sum;
  float features;
};

/// Stores dx of a row: gradient(i), plus d_residual if given.
template <class T, class Gradient>
void store_row(const BackwardRow<T>& row, std::int64_t hidden, const Gradient& gradient) {
  if (row.d_residual == nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < hidden; ++i) row.dx[i] = from_float<T>(gradient(i));
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < hidden; ++i) {
      row.dx[i] = from_float<T>(gradient(i) + to_float(row.d_residual[i]));
    }
  }
}

/// dx = rstd (g - mean(g) - z mean(g z)) with g = dy weight and z the normalised input. Adds to the
/// gradients of weight and bias.
template <class T>
void layer_row(const BackwardRow<T> row, const float* weight, float* dweight, float* dbias,
               std::int64_t hidden) {
  float g_total = 0;
  float gz_total = 0;
#pragma omp simd reduction(+ : g_total, gz_total)
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float dy = to_float(row.dy[i]);
    const float z = (to_float(row.x[i]) - row.mean) * row.rstd;
    const float g = dy * (weight[i] + row.offset);
    g_total += g;
    gz_total += g * z;
    dweight[i] += dy * z;
    dbias[i] += dy;
  }
  const float g_mean = g_total / static_cast<float>(hidden);
  const float gz_mean = gz_total / static_cast<float>(hidden);
  store_row(row, hidden, [&](std::int64_t i) {
    const float z = (to_float(row.x[i]) - row.mean) * row.rstd;
    return row.rstd * (to_float(row.dy[i]) * (weight[i] + row.offset) - g_mean - z * gz_mean);
  });
}

/// dx = rstd (g - z mean(g z)), with g and z as in layer_row. Adds to the weight's gradient.
template <class T>
void rms_row(const BackwardRow<T> row, const float* weight, float* dweight, std::int64_t hidden) {
  float gz_total = 0;
#pragma omp simd reduction(+ : gz_total)
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float dy = to_float(row.dy[i]);
    const float z = to_float(row.x[i]) * row.rstd;
    gz_total += dy * (weight[i] + row.offset) * z;
    dweight[i] += dy * z;
  }
  if (row.sum != nullptr) gz_total = *row.sum * row.rstd;
  const float factor = gz_total / row.features * row.rstd;
  store_row(row, hidden, [&](std::int64_t i) {
    return row.rstd *
           (to_float(row.dy[i]) * (weight[i] + row.offset) - to_float(row.x[i]) * factor);
  });
}

/// Computes dx of a row if the norm has no weights.
template <class T>
void unweighted_row(const BackwardRow<T> row, std::int64_t hidden) {
  float gz_total = 0;
#pragma omp simd reduction(+ : gz_total)
  for (std::int64_t i = 0; i < hidden; ++i) {
    gz_total += to_float(row.dy[i]) * (to_float(row.x[i]) * row.rstd);
  }
  const float factor = gz_total / static_cast<float>(hidden) * row.rstd;
  store_row(row, hidden, [&](std::int64_t i) {
    return row.rstd * (to_float(row.dy[i]) - to_float(row.x[i]) * factor);
  });
}

template <class T>
BackwardRow<T> row_of(const NormBackward& args, std::int64_t row) {
  const std::int64_t at = row * args.x.columns();
  return {args.dy.as<T>() + at,
          args.x.as<T>() + at,
          args.d_residual.empty() ? nullptr : args.d_residual.as<T>() + at,
          args.dx.as<T>() + at,
          args.mean.empty() ? 0.0F : args.mean.as<float>()[row],
          args.rstd.as<float>()[row],
          weight_offset(args.zero_centered),
          args.sums.empty() ? nullptr : args.sums.as<float>() + row,
          static_cast<float>(args.sums.empty() ? args.x.columns() : args.features)};
}

template <class T>
void unweighted_backward(const NormBackward& args) {
  const std::int64_t hidden = args.x.columns();
  parallel_for(args.x.rows(), row_grain(hidden), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) unweighted_row(row_of<T>(args, row), hidden);
  });
}

template <bool layer, class T>
void backward(const OpContext& context, const NormBackward& args) {
  const std::int64_t hidden = args.x.columns();
  const RowPartials partials(context, args.x.rows(), (layer ? 2 : 1) * hidden);
  partials.for_blocks([&](std::int64_t first, std::int64_t last, float* sums) {
    for (std::int64_t row = first; row < last; ++row) {
      const BackwardRow<T> operands = row_of<T>(args, row);
      const float* weight = args.weight.as<float>();
      if constexpr (layer) {
        layer_row(operands, weight, sums, sums + hidden, hidden);
      } else {
        rms_row(operands, weight, sums, hidden);
      }
    }
  });
  partials.add_to(args.dweight.as<float>(), 0, hidden);
  if (layer) partials.add_to(args.dbias.as<float>(), hidden, hidden);
}

template <class T>
void sums(const NormSums& args) {
  const std::int64_t hidden = args.x.columns();
  const float offset = weight_offset(args.zero_centered);
  const float* weight = static_cast<const float*>(args.weight.data);
  const auto of_row = [&](const T* x, const T* dy) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < hidden; ++i) {
      sum += to_float(dy[i]) * (weight[i] + offset) * to_float(x[i]);
    }
    return sum;
  };
  parallel_for(args.x.rows(), row_grain(hidden), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const T* x = args.x.as<T>() + row * hidden;
      args.sums.as<float>()[row] = args.dy.empty()
                                       ? variance_of(x, 0.0F, hidden) * static_cast<float>(hidden)
                                       : of_row(x, args.dy.as<T>() + row * hidden);
    }
  });
}

}  // namespace

void norm_sums_cpu(const OpContext&, const NormSums& args) {
  with_element_type(args.x.dtype, [&](auto element) { sums<decltype(element)>(args); });
}

void norm_forward_cpu(const OpContext&, const NormForward& args) {
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    switch (form_of(args.kind, args.weight)) {
      case Form::layer: return forward<Form::layer, T>(args);
      case Form::rms: return forward<Form::rms, T>(args);
      case Form::unweighted: return forward<Form::unweighted, T>(args);
    }
  });
}

void norm_backward_cpu(const OpContext& context, const NormBackward& args) {
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    switch (form_of(args.kind, args.weight)) {
      case Form::layer: return backward<true, T>(context, args);
      case Form::rms: return backward<false, T>(context, args);
      case Form::unweighted: return unweighted_backward<T>(args);
    }
  });
}

}  // namespace trainctl
