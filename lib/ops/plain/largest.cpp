#include "ops/largest.h"

#include <algorithm>

#include "base/ordered_key.h"
#include "ops/plain/kernels.h"

namespace trainctl {

void largest_plain(const OpContext&, const Largest& args) {
  auto* key = static_cast<std::uint32_t*>(args.key.data);
  const float* x = args.x.as<float>();
  for (std::int64_t i = 0; i < args.x.numel(); ++i) *key = std::max(*key, ordered_key(x[i]));
}

}  // namespace trainctl
