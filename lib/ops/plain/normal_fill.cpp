#include "base/philox.h"
#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

void normal_fill_plain(const OpContext&, const NormalFill& args) {
  const Philox random(args.seed, args.stream);
  with_fp32_or_bf16(args.x, [&](auto element) {
    using T = decltype(element);
    for (std::int64_t i = 0; i < args.x.numel(); ++i) {
      const float value = random.normal(static_cast<std::uint64_t>(args.first + i));
      args.x.as<T>()[i] = from_float<T>(args.deviation * value);
    }
  });
}

}  // namespace trainctl
