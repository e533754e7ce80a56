#include "ops/plain/kernels.h"

namespace trainctl {

void square_sum_plain(const OpContext&, const SquareSum& args) {
  constexpr std::int64_t block = 4096;
  const float* x = args.x.as<float>();
  const std::int64_t count = args.x.numel();
  for (std::int64_t begin = 0; begin < count; begin += block) {
    double sum = 0;
    for (std::int64_t i = begin; i < count && i < begin + block; ++i) {
      sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    *args.result += sum;
  }
}

}  // namespace trainctl
