#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/philox_lanes.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

template <class T>
void drop(const Dropout& args) {
  const std::int64_t columns = args.x.columns();
  const StepState& state = *args.key.state;
  const DropoutFactors factors(state.seed, dropout_stream(state.step, args.key.site),
                               args.key.probability);
  parallel_for(args.x.rows(), row_grain(columns), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t token = args.global_token.as<std::int64_t>()[row];
      T* x = args.x.as<T>() + row * columns;
      const auto index = static_cast<std::uint64_t>(token * args.features + args.first_feature);
      factors.for_runs(index, columns, [x](std::int64_t at, std::int64_t count, const float* run) {
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) {
          x[at + i] = from_float<T>(run[i] == 0.0F ? 0.0F : to_float(x[at + i]) * run[i]);
        }
      });
    }
  });
}

}  // namespace

void dropout_cpu(const OpContext&, const Dropout& args) {
  with_element_type(args.x.dtype, [&](auto element) { drop<decltype(element)>(args); });
}

}  // namespace trainctl
