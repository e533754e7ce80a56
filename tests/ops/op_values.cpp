// What takes most of the time of op tests: random elements, and comparing all of them. Compiled
// with optimisation, unlike other code of tests.
#include "op_values.h"

#include "base/philox.h"

namespace op_test {

namespace {

/// Drawn once, since each takes a logarithm and a cosine. Their number is a prime, so that rows of
/// no width repeat them in step.
const std::vector<float>& normals() {
  static const std::vector<float> drawn = [] {
    std::vector<float> values(65521);
    const Philox source(7, 0);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = source.normal(i);
    return values;
  }();
  return drawn;
}

}  // namespace

Values Values::random(const Shape& shape, DType dtype, std::uint64_t stream, float deviation) {
  Values values(shape, dtype);
  const std::vector<float>& drawn = normals();
  std::size_t place = stream * 7919 % drawn.size();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    values.set(i, deviation * drawn[place]);
    if (++place == drawn.size()) place = 0;
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
