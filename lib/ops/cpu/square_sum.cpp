#include <algorithm>
#include <array>

#include "base/parallel_for.h"
#include "ops/cpu/kernels.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

constexpr std::int64_t block = element_piece;
constexpr std::int64_t batch = 512;  // blocks per parallel loop; their sums lie on the stack

double sum_of_squares(const float* x, std::int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = x[i];
    sum += value * value;
  }
  return sum;
}

void add_squares(const OpContext&, const SquareSum& args) {
  const std::int64_t count = args.x.numel();
  const std::int64_t blocks = (count + block - 1) / block;
  std::array<double, batch> sums;
  for (std::int64_t first = 0; first < blocks; first += batch) {
    const std::int64_t here = std::min(batch, blocks - first);
    parallel_for(here, 8, [&](std::int64_t begin, std::int64_t end) {
      float room[block];
      for (std::int64_t at = begin; at < end; ++at) {
        const std::int64_t start = (first + at) * block;
        const std::int64_t stop = std::min(count, start + block);
        sums[static_cast<std::size_t>(at)] =
            sum_of_squares(as_floats(args.x, start, stop, room), stop - start);
      }
    });
    for (std::int64_t at = 0; at < here; ++at) *args.result += sums[static_cast<std::size_t>(at)];
  }
}

}  // namespace

void square_sum_cpu(const OpContext& context, const Calls<SquareSum>& calls) {
  each_call<SquareSum, add_squares>(context, calls);
}

}  // namespace trainctl
