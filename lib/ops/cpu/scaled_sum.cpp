#include "ops/scaled_sum.h"

#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/elements.h"

namespace trainctl {

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

}  // namespace trainctl
