#include "ops/cpu/kernels.h"
#include "ops/elements.h"

namespace trainctl {

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

}  // namespace trainctl
