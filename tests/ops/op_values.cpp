// What takes most of the time of op tests: random elements, and comparing all of them. Compiled
// with optimisation, unlike other code of tests.
#include "op_values.h"

#include "base/philox.h"

namespace op_test {

Values Values::random(const Shape& shape, DType dtype, std::uint64_t stream, float deviation) {
  Values values(shape, dtype);
  const Philox source(7, stream);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    values.set(i, deviation * source.normal(static_cast<std::uint64_t>(i)));
  }
  return values;
}

double difference(const Values& got, const Values& expected, double least) {
  double apart = 0;
  double size = least;
  for (std::int64_t i = 0; i < expected.numel(); ++i) {
    const double gap = std::abs(got.at(i) - expected.at(i));
    apart = std::isfinite(gap) ? std::max(apart, gap) : INFINITY;
    size = std::max(size, std::abs(expected.at(i)));
  }
  return apart / size;
}

}  // namespace op_test
