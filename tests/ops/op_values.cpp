// What takes most of the time of op tests: random elements, and comparing all of them. Compiled
// with optimisation, unlike other code of tests.
#include "op_values.h"

#include "base/philox.h"

namespace op_test {

namespace {

/// At least `count` elements of a stream. They are kept, since each takes a logarithm and a cosine,
/// and tests ask for the same streams again and again.
const std::vector<float>& normals(std::uint64_t stream, std::int64_t count) {
  thread_local std::map<std::uint64_t, std::vector<float>> drawn;
  std::vector<float>& kept = drawn[stream];
  const Philox source(7, stream);
  while (std::ssize(kept) < count) kept.push_back(source.normal(kept.size()));
  return kept;
}

}  // namespace

Values Values::random(const Shape& shape, DType dtype, std::uint64_t stream, float deviation) {
  Values values(shape, dtype);
  const std::vector<float>& drawn = normals(stream, values.numel());
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    values.set(i, deviation * drawn[static_cast<std::size_t>(i)]);
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
