#include <cmath>

#include "base/parallel_for.h"
#include "base/philox.h"
#include "ops/cpu/kernels.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

struct Pair {
  float even, odd;
};

/// Philox::normal of elements 2 * index and 2 * index + 1, with the same operations in the same
/// precision, so that the bits are the same.
Pair normal_pair(const Philox& random, std::uint64_t index) {
  const auto words = random.block(index);
  const double u = (static_cast<double>(words[0]) + 1.0) * 0x1.0p-32;
  const double angle = static_cast<double>(words[1]) * (0x1.0p-32 * 2.0 * 3.14159265358979323846);
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

template <class T>
void fill(const NormalFill& args) {
  const Philox random(args.seed, args.stream);
  T* x = args.x.as<T>();
  const std::int64_t first = args.first;
  const std::int64_t last = first + args.x.numel();
  const std::int64_t first_pair = first / 2;
  const std::int64_t pairs = (last + 1) / 2 - first_pair;
  parallel_for(pairs, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pair = first_pair + begin; pair < first_pair + end; ++pair) {
      const Pair values = normal_pair(random, static_cast<std::uint64_t>(pair));
      const std::int64_t at = 2 * pair;
      if (at >= first) x[at - first] = from_float<T>(args.deviation * values.even);
      if (at + 1 < last) x[at + 1 - first] = from_float<T>(args.deviation * values.odd);
    }
  });
}

}  // namespace

void normal_fill_cpu(const OpContext&, const NormalFill& args) {
  with_fp32_or_bf16(args.x, [&](auto element) { fill<decltype(element)>(args); });
}

}  // namespace trainctl
