#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

void add_plain(const OpContext&, const Add& args) {
  with_element_type(args.y.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::int64_t i = 0; i < args.y.numel(); ++i) {
      const double a = args.a.empty() ? 0.0F : to_float(args.a.as<T>()[i]);
      const double b =
          args.b.dtype == DType::f32 ? args.b.as<float>()[i] : to_float(args.b.as<T>()[i]);
      args.y.as<T>()[i] = from_float<T>(static_cast<float>(a + args.factor * b));
    }
  });
}

}  // namespace trainctl
