#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/vector_math.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

constexpr float lowest = -std::numeric_limits<float>::infinity();

/// Computes z of a stored logit (LogitForm); sloped() multiplies a gradient by dz.
struct PlainLogit {
  explicit PlainLogit(const LogitForm&) {}
  float z(float x) const { return x; }
  float sloped(float gradient, float) const { return gradient; }
};
struct ScaledLogit {
  float scale;
  explicit ScaledLogit(const LogitForm& form) : scale(form.scale) {}
  float z(float x) const { return scale * x; }
  float sloped(float gradient, float) const { return gradient * scale; }
};
struct CappedLogit {
  float scale, cap;
  explicit CappedLogit(const LogitForm& form) : scale(form.scale), cap(form.cap) {}
  float z(float x) const { return cap * fast_tanh(scale * x / cap); }
  float sloped(float gradient, float z) const {
    const float part = z / cap;
    return gradient * scale * (1 - part * part);
  }
};

template <class Visit>
void with_form(const LogitForm& form, const Visit& visit) {
  if (form.is_plain()) return visit(PlainLogit(form));
  form.cap > 0 ? visit(CappedLogit(form)) : visit(ScaledLogit(form));
}

/// The largest logit, ignoring NaNs. Uses lanes, because compilers may not reorder a maximum.
template <class T, class Form>
float highest_of(const T* logits, const Form& form, std::int64_t count) {
  constexpr std::int64_t lanes = 64;
  std::array<float, lanes> highest;
  highest.fill(lowest);
  std::int64_t begin = 0;
  for (; begin + lanes <= count; begin += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      float& so_far = highest[static_cast<std::size_t>(lane)];
      const float logit = form.z(to_float(logits[begin + lane]));
      so_far = logit > so_far ? logit : so_far;
    }
  }
  float result = *std::max_element(highest.begin(), highest.end());
  for (; begin < count; ++begin) result = std::max(result, form.z(to_float(logits[begin])));
  return result;
}

/// For some logits, the largest one and the sum of exp(logit - shift).
struct RowStats {
  float highest;
  double sum;
};

/// Computes the stats in lanes, and prefetches the following logits into the cache.
template <class T, class Form>
RowStats block_stats(const T* logits, const Form& form, float shift, std::int64_t count) {
  constexpr std::int64_t lanes = 32;
  constexpr std::int64_t ahead = 2048;
  alignas(64) std::array<float, lanes> sums{};
  alignas(64) std::array<float, lanes> highest;
  highest.fill(lowest);
  std::int64_t begin = 0;
  for (; begin + lanes <= count; begin += lanes) {
    fetch(logits + begin + ahead, lanes);
#pragma omp simd
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const float logit = form.z(to_float(logits[begin + lane]));
      float& so_far = highest[static_cast<std::size_t>(lane)];
      so_far = logit > so_far ? logit : so_far;
      sums[static_cast<std::size_t>(lane)] += fast_exp_of_term(logit - shift);
    }
  }
  RowStats block{*std::max_element(highest.begin(), highest.end()), 0};
  for (const float sum : sums) block.sum += static_cast<double>(sum);
  for (; begin < count; ++begin) {
    const float logit = form.z(to_float(logits[begin]));
    block.highest = std::max(block.highest, logit);
    block.sum += static_cast<double>(fast_exp_of_term(logit - shift));
  }
  return block;
}

/// Reads a row in blocks. The terms of a block are relative to `shift`, the largest logit when it
/// was last set. A block is read twice only if one of its logits exceeds the shift by more than
/// fast_exp_of_term allows.
template <class T, class Form>
RowStats row_stats(const T* logits, const Form& form, std::int64_t count) {
  constexpr std::int64_t block = 4096;
  RowStats row{lowest, 0};
  float shift = lowest;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t here = std::min(block, count - begin);
    if (shift == lowest) shift = highest_of(logits + begin, form, here);
    // With a shift of -inf, all logits of the block are -inf, which add nothing, or NaN, which must
    // show in the result.
    RowStats terms = block_stats(logits + begin, form, shift == lowest ? 0.0F : shift, here);
    if (terms.highest > shift + 1) {
      row.sum *= static_cast<double>(fast_exp_of_term(shift - terms.highest));
      shift = terms.highest;
      terms = block_stats(logits + begin, form, shift, here);
    }
    row.highest = std::max(row.highest, terms.highest);
    row.sum += terms.sum;
  }
  if (row.highest > shift) row.sum *= static_cast<double>(fast_exp_of_term(shift - row.highest));
  return row;
}

template <class T, class Form>
void stats(const CrossEntropyArgs& args, const Form& form) {
  const std::int64_t columns = args.logits.columns();
  parallel_for(args.logits.rows(), row_grain(columns), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const T* logits = args.logits.as<T>() + row * columns;
      const RowStats result = row_stats(logits, form, args.valid);
      const std::int64_t label = args.labels.as<std::int32_t>()[row] - args.first_column;
      const bool here = label >= 0 && label < args.valid;
      args.row_max.as<float>()[row] = result.highest;
      args.row_sum.as<float>()[row] = static_cast<float>(result.sum);
      args.target.as<float>()[row] = here ? form.z(to_float(logits[label])) : 0.0F;
    }
  });
}

float scale_of(const StepState& state) {
  return static_cast<float>(double{state.loss_factor} * state.loss_scale);
}

/// Gradient of one row: exp(z - row_max) / row_sum * scale, minus scale at the label, times dz.
template <class T, class Form>
void gradient_row(const CrossEntropyArgs& args, const Form& form, std::int64_t row) {
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
  const float z_label = here ? form.z(to_float(logits[label])) : 0.0F;
  const float at_label =
      here ? form.sloped(fast_exp_of_term(z_label - highest) * factor - scale, z_label) : 0.0F;
  const auto differentiate = [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float z = form.z(to_float(logits[i]));
      logits[i] = from_float<T>(form.sloped(fast_exp_of_term(z - highest) * factor, z));
    }
  };
  for_blocks_ahead(0, valid, differentiate, logits);
  if (here) logits[label] = from_float<T>(at_label);
  std::fill(logits + valid, logits + columns, T{});
}

/// Sums in row order and in double, so that the result is independent of the number of threads.
double loss_of(const CrossEntropyArgs& args) {
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

void cross_entropy_stats_cpu(const OpContext&, const CrossEntropyArgs& args) {
  with_element_type(args.logits.dtype, [&](auto element) {
    with_form(args.form, [&](const auto& form) { stats<decltype(element)>(args, form); });
  });
}

void cross_entropy_gradient_cpu(const OpContext&, const CrossEntropyArgs& args) {
  if (args.owns_loss) std::atomic_ref(args.state->loss_sum).fetch_add(loss_of(args));
  if (args.forward_only) return;
  with_element_type(args.logits.dtype, [&](auto element) {
    with_form(args.form, [&](const auto& form) {
      parallel_for(args.logits.rows(), row_grain(args.logits.columns()),
                   [&](std::int64_t first, std::int64_t last) {
                     for (std::int64_t row = first; row < last; ++row) {
                       gradient_row<decltype(element)>(args, form, row);
                     }
                   });
    });
  });
}

}  // namespace trainctl
