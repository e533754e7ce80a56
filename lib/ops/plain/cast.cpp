#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

void cast_plain(const OpContext&, const Cast& args) {
  with_element_type(args.x.dtype, [&](auto from) {
    with_element_type(args.y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      for (std::int64_t i = 0; i < args.x.numel(); ++i) {
        args.y.as<To>()[i] = from_float<To>(to_float(args.x.as<From>()[i]));
      }
    });
  });
}

}  // namespace trainctl
