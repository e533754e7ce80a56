#include "base/philox.h"
#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

template <class T>
void drop(const Dropout& args) {
  const StepState& state = *args.key.state;
  const Philox random(state.seed, dropout_stream(state.step, args.key.site));
  const float scale = 1.0F / (1.0F - args.key.probability);
  for (std::int64_t row = 0; row < args.x.rows(); ++row) {
    const std::int64_t token = args.global_token.as<std::int64_t>()[row];
    for (std::int64_t column = 0; column < args.x.columns(); ++column) {
      T& x = args.x.as<T>()[row * args.x.columns() + column];
      const std::int64_t index = token * args.features + args.first_feature + column;
      const bool keep = random.uniform(static_cast<std::uint64_t>(index)) >= args.key.probability;
      x = from_float<T>(keep ? to_float(x) * scale : 0.0F);
    }
  }
}

}  // namespace

void dropout_plain(const OpContext&, const Dropout& args) {
  with_element_type(args.x.dtype, [&](auto element) { drop<decltype(element)>(args); });
}

}  // namespace trainctl
