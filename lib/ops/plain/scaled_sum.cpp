#include "ops/scaled_sum.h"

#include <cmath>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

void scaled_sum_plain(const OpContext&, const ScaledSum& args) {
  const float alpha = args.squares == nullptr
                          ? args.alpha
                          : divided(args.alpha, std::sqrt(*args.squares), args.least);
  const std::int64_t count = args.x.numel();
  const Tensor x = args.x.view({count});
  const Tensor y = args.y.empty() ? args.y : args.y.view({count});
  const Tensor z = args.z.view({count});
  for (std::int64_t i = 0; i < count; ++i) {
    const auto scaled = alpha * static_cast<float>(element_of(x, i));
    const float added = y.empty() ? 0.0F : args.beta * static_cast<float>(element_of(y, i));
    with_fp32_or_bf16(z, [&](auto element) {
      using T = decltype(element);
      z.as<T>()[i] = from_float<T>(scaled + added);
    });
  }
}

}  // namespace trainctl
