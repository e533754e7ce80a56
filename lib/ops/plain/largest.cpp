#include "ops/largest.h"

#include <algorithm>

#include "base/ordered_key.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

/// Whether the query of number `i` counts.
bool counts(const Largest& args, std::int64_t i) {
  if (args.real.empty()) return true;
  const TokenRuns queries = args.shape.queries();
  const std::int64_t query = i % args.shape.query_length;
  const std::int64_t sequence = i / args.shape.query_length / args.shape.heads;
  const std::int64_t row =
      queries.at(query / queries.length).row + sequence * queries.stride + query % queries.length;
  return args.real.as<std::uint8_t>()[row] != 0;
}

}  // namespace

void largest_plain(const OpContext&, const Largest& args) {
  auto* key = static_cast<std::uint32_t*>(args.key.data);
  const float* x = args.x.as<float>();
  for (std::int64_t i = 0; i < args.x.numel(); ++i) {
    if (counts(args, i)) *key = std::max(*key, ordered_key(x[i]));
  }
}

}  // namespace trainctl
