#include "base/philox.h"
#include "ops/plain/kernels.h"

namespace trainctl {

void normal_fill_plain(const OpContext&, const NormalFill& args) {
  const Philox random(args.seed, args.stream);
  for (std::int64_t i = 0; i < args.x.numel(); ++i) {
    args.x.as<float>()[i] =
        args.deviation * random.normal(static_cast<std::uint64_t>(args.first + i));
  }
}

}  // namespace trainctl
