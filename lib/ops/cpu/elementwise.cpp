#include <cmath>

#include "base/parallel_for.h"
#include "base/philox.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/philox_lanes.h"
#include "ops/elements.h"
#include "ops/elementwise.h"

namespace trainctl {

namespace {

template <class T, class Other>
void add_to(const Add& args) {
  const T* a = args.a.as<T>();
  const Other* b = args.b.as<Other>();
  T* y = args.y.as<T>();
  const float factor = args.factor;
  for_elements(args.y.numel(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      y[i] = from_float<T>(to_float(a[i]) + factor * to_float(b[i]));
    }
  });
}

template <class T, class Other>
void scale_to(const Add& args) {
  const Other* b = args.b.as<Other>();
  T* y = args.y.as<T>();
  const float factor = args.factor;
  for_elements(args.y.numel(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) y[i] = from_float<T>(factor * to_float(b[i]));
  });
}

template <class T, class Other>
void add_or_scale(const Add& args) {
  args.a.empty() ? scale_to<T, Other>(args) : add_to<T, Other>(args);
}

}  // namespace

void add_cpu(const OpContext&, const Add& args) {
  with_element_type(args.y.dtype, [&](auto element) {
    using T = decltype(element);
    args.b.dtype == args.y.dtype ? add_or_scale<T, T>(args) : add_or_scale<T, float>(args);
  });
}

namespace {

template <class From, class To>
void convert(const Cast& args) {
  const From* x = args.x.as<From>();
  To* y = args.y.as<To>();
  for_elements(args.x.numel(), [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) y[i] = from_float<To>(to_float(x[i]));
  });
}

}  // namespace

void cast_cpu(const OpContext&, const Cast& args) {
  with_element_type(args.x.dtype, [&](auto from) {
    with_element_type(args.y.dtype, [&](auto to) { convert<decltype(from), decltype(to)>(args); });
  });
}

namespace {

template <class X, class Y, class Z>
void sum_elements(const ScaledSum& args, float alpha) {
  const X* x = args.x.as<X>();
  const Y* y = args.y.as<Y>();
  Z* z = args.z.as<Z>();
  const float beta = args.beta;
  for_elements(args.x.numel(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      z[i] = from_float<Z>(alpha * to_float(x[i]) + beta * to_float(y[i]));
    }
  });
}

template <class X, class Z>
void scale_elements(const ScaledSum& args, float alpha) {
  const X* x = args.x.as<X>();
  Z* z = args.z.as<Z>();
  for_elements(args.x.numel(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) z[i] = from_float<Z>(alpha * to_float(x[i]));
  });
}

}  // namespace

void scaled_sum_cpu(const OpContext&, const ScaledSum& args) {
  const float alpha = args.squares == nullptr
                          ? args.alpha
                          : divided(args.alpha, std::sqrt(*args.squares), args.least);
  with_fp32_or_bf16(args.x, [&](auto x) {
    with_fp32_or_bf16(args.z, [&](auto z) {
      using X = decltype(x);
      using Z = decltype(z);
      if (args.y.empty()) return scale_elements<X, Z>(args, alpha);
      with_fp32_or_bf16(args.y, [&](auto y) { sum_elements<X, decltype(y), Z>(args, alpha); });
    });
  });
}

namespace {

struct Pair {
  float even, odd;
};

/// Philox::normal of elements 2 * index and 2 * index + 1, with the same operations and precision,
/// so that results are bit-identical.
Pair normal_pair(const Philox& random, std::uint64_t index) {
  const auto words = random.block(index);
  const double u = (static_cast<double>(words[0]) + 1.0) * 0x1.0p-32;
  const double angle = static_cast<double>(words[1]) * (0x1.0p-32 * 2.0 * 3.14159265358979323846);
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

template <class T>
void fill(const NormalFill& args) {
  const Philox random(args.seed, args.stream);
  T* x = args.x.as<T>();
  const std::int64_t first = args.first;
  const std::int64_t last = first + args.x.numel();
  const std::int64_t first_pair = first / 2;
  const std::int64_t pairs = (last + 1) / 2 - first_pair;
  parallel_for(pairs, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pair = first_pair + begin; pair < first_pair + end; ++pair) {
      const Pair values = normal_pair(random, static_cast<std::uint64_t>(pair));
      const std::int64_t at = 2 * pair;
      if (at >= first) x[at - first] = from_float<T>(args.deviation * values.even);
      if (at + 1 < last) x[at + 1 - first] = from_float<T>(args.deviation * values.odd);
    }
  });
}

}  // namespace

void normal_fill_cpu(const OpContext&, const NormalFill& args) {
  with_fp32_or_bf16(args.x, [&](auto element) { fill<decltype(element)>(args); });
}

namespace {

template <class T>
void drop(const Dropout& args) {
  const std::int64_t columns = args.x.columns();
  const StepState& state = *args.key.state;
  const DropoutFactors factors(state.seed, dropout_stream(state.step, args.key.site),
                               args.key.probability);
  parallel_for(args.x.rows(), row_grain(columns), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t token = args.global_token.as<std::int64_t>()[row];
      T* x = args.x.as<T>() + row * columns;
      const auto index = static_cast<std::uint64_t>(token * args.features + args.first_feature);
      factors.for_runs(index, columns, [x](std::int64_t at, std::int64_t count, const float* run) {
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) {
          x[at + i] = from_float<T>(run[i] == 0.0F ? 0.0F : to_float(x[at + i]) * run[i]);
        }
      });
    }
  });
}

}  // namespace

void dropout_cpu(const OpContext&, const Dropout& args) {
  with_element_type(args.x.dtype, [&](auto element) { drop<decltype(element)>(args); });
}

}  // namespace trainctl
