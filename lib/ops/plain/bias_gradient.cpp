#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

void bias_gradient_plain(const OpContext&, const BiasGradient& args) {
  with_element_type(args.dy.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t features = args.dy.columns();
    for (std::int64_t column = 0; column < features; ++column) {
      double sum = 0;
      for (std::int64_t row = 0; row < args.dy.rows(); ++row) {
        sum += to_float(args.dy.as<T>()[row * features + column]);
      }
      args.db.as<float>()[column] += static_cast<float>(sum);
    }
  });
}

}  // namespace trainctl
