#include "ops/cpu/kernels.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

template <class T, class Other>
void add_to(const Add& args) {
  const T* a = args.a.as<T>();
  const Other* b = args.b.as<Other>();
  T* y = args.y.as<T>();
  for_elements(args.a.numel(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      y[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
    }
  });
}

}  // namespace

void add_cpu(const OpContext&, const Add& args) {
  with_element_type(args.a.dtype, [&](auto element) {
    using T = decltype(element);
    args.b.dtype == args.a.dtype ? add_to<T, T>(args) : add_to<T, float>(args);
  });
}

}  // namespace trainctl
