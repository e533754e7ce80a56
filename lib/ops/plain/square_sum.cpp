#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

void plain_squares(const OpContext&, const SquareSum& args) {
  constexpr std::int64_t block = 4096;
  const std::int64_t count = args.x.numel();
  for (std::int64_t begin = 0; begin < count; begin += block) {
    double sum = 0;
    for (std::int64_t i = begin; i < count && i < begin + block; ++i) {
      const double x = element_of(args.x, i);
      sum += x * x;
    }
    *args.result += sum;
  }
}

}  // namespace

void square_sum_plain(const OpContext& context, const Calls<SquareSum>& calls) {
  each_call<SquareSum, plain_squares>(context, calls);
}

}  // namespace trainctl
