#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/ahead.h"
#include "ops/cpu/vector/vector_math.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

constexpr float lowest = -std::numeric_limits<float>::infinity();

/// The largest logit; NaNs do not count. In lanes, since compilers may not reorder a maximum.
template <class T>
float highest_of(const T* logits, std::int64_t count) {
  constexpr std::int64_t lanes = 64;
  std::array<float, lanes> highest;
  highest.fill(lowest);
  std::int64_t begin = 0;
  for (; begin + lanes <= count; begin += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      float& so_far = highest[static_cast<std::size_t>(lane)];
      const float logit = to_float(logits[begin + lane]);
      so_far = logit > so_far ? logit : so_far;
    }
  }
  float result = *std::max_element(highest.begin(), highest.end());
  for (; begin < count; ++begin) result = std::max(result, to_float(logits[begin]));
  return result;
}

/// In lanes too. Meanwhile what lies `ahead` logits further on is fetched into the cache: the
/// processor's own prefetching rests while a block is read a second time.
template <class T>
float sum_of_exp(const T* logits, float highest, std::int64_t count, std::int64_t ahead) {
  constexpr std::int64_t lanes = 64;
  alignas(64) std::array<float, lanes> sums{};
  std::int64_t begin = 0;
  for (; begin + lanes <= count; begin += lanes) {
    fetch(logits + begin + ahead, lanes);
#pragma omp simd
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      sums[static_cast<std::size_t>(lane)] +=
          fast_exp_bounded(to_float(logits[begin + lane]) - highest);
    }
  }
  float sum = 0;
  for (const float one : sums) sum += one;
  for (; begin < count; ++begin) sum += fast_exp_bounded(to_float(logits[begin]) - highest);
  return sum;
}

struct RowStats {
  float highest;
  double sum;
};

/// Reads the row from memory once: blocks that stay in the first cache give a maximum, then a sum
/// that is rescaled as the maximum rises.
template <class T>
RowStats row_stats(const T* logits, std::int64_t count) {
  constexpr std::int64_t block = 4096;
  RowStats row{lowest, 0};
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t here = std::min(block, count - begin);
    const float highest = std::max(row.highest, highest_of(logits + begin, here));
    // Nothing above -inf yet: either all of it is -inf, which adds nothing, or a NaN, which must
    // show.
    const float shift = highest == lowest ? 0.0F : highest;
    row.sum = row.sum * static_cast<double>(fast_exp(row.highest - shift)) +
              static_cast<double>(sum_of_exp(logits + begin, shift, here, block));
    row.highest = highest;
  }
  return row;
}

template <class T>
void stats(const CrossEntropyStats& args) {
  const std::int64_t columns = args.logits.columns();
  parallel_for(args.logits.rows(), row_grain(columns), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const T* logits = args.logits.as<T>() + row * columns;
      const RowStats result = row_stats(logits, args.valid);
      const std::int64_t label = args.labels.as<std::int32_t>()[row] - args.first_column;
      const bool here = label >= 0 && label < args.valid;
      args.row_max.as<float>()[row] = result.highest;
      args.row_sum.as<float>()[row] = static_cast<float>(result.sum);
      args.target.as<float>()[row] = here ? to_float(logits[label]) : 0.0F;
    }
  });
}

float scale_of(const StepState& state) {
  return static_cast<float>(double{state.loss_factor} * state.loss_scale);
}

/// One row: exp(logit - row_max) / row_sum * scale, less scale at the label.
template <class T>
void gradient_row(const CrossEntropyGradient& args, std::int64_t row) {
  const std::int64_t columns = args.logits.columns();
  T* logits = args.logits.as<T>() + row * columns;
  const float weight = args.weight.as<float>()[row];
  if (weight == 0) {
    std::fill(logits, logits + columns, T{});
    return;
  }
  const float scale = weight * scale_of(*args.state);
  const float highest = args.row_max.as<float>()[row];
  const float factor = scale / args.row_sum.as<float>()[row];
  const std::int64_t valid = args.valid;
  const std::int64_t label = args.labels.as<std::int32_t>()[row] - args.first_column;
  const bool here = label >= 0 && label < valid;
  const float at_label = here ? fast_exp(to_float(logits[label]) - highest) * factor - scale : 0.0F;
  const auto differentiate = [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      logits[i] = from_float<T>(fast_exp_bounded(to_float(logits[i]) - highest) * factor);
    }
  };
  for_blocks_ahead(0, valid, differentiate, logits);
  if (here) logits[label] = from_float<T>(at_label);
  std::fill(logits + valid, logits + columns, T{});
}

/// In row order and in double, whatever the thread count.
double loss_of(const CrossEntropyGradient& args) {
  double loss = 0;
  for (std::int64_t row = 0; row < args.logits.rows(); ++row) {
    const double weight = args.weight.as<float>()[row];
    if (weight == 0) continue;
    const double sum = args.row_sum.as<float>()[row];
    const double logsumexp = args.row_max.as<float>()[row] + std::log(sum);
    loss += weight * (logsumexp - args.target.as<float>()[row]);
  }
  return loss;
}

}  // namespace

void cross_entropy_stats_cpu(const OpContext&, const CrossEntropyStats& args) {
  with_element_type(args.logits.dtype, [&](auto element) { stats<decltype(element)>(args); });
}

void cross_entropy_gradient_cpu(const OpContext&, const CrossEntropyGradient& args) {
  if (args.owns_loss) std::atomic_ref(args.state->loss_sum).fetch_add(loss_of(args));
  if (args.forward_only) return;
  with_element_type(args.logits.dtype, [&](auto element) {
    parallel_for(args.logits.rows(), row_grain(args.logits.columns()),
                 [&](std::int64_t first, std::int64_t last) {
                   for (std::int64_t row = first; row < last; ++row) {
                     gradient_row<decltype(element)>(args, row);
                   }
                 });
  });
}

}  // namespace trainctl
