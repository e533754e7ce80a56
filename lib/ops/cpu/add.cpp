#include "ops/cpu/kernels.h"
#include "ops/elements.h"

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

}  // namespace trainctl
