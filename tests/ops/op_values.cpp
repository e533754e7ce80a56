// The code that takes most of the time of op tests: it makes random elements, and compares all of
// them. It is compiled with optimisation, unlike other code of tests.
#include "op_values.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "base/integers.h"
#include "base/philox.h"

namespace op_test {

namespace {

/// Shown when the program ends, if it was asked for.
struct HashOfValues {
  const bool wanted = std::getenv("TRAINCTL_HASH_VALUES") != nullptr;
  const std::thread::id thread = std::this_thread::get_id();
  std::uint64_t hash = fnv_offset;

  ~HashOfValues() {
    if (wanted) std::printf("values %016llx\n", static_cast<unsigned long long>(hash));
  }
};
HashOfValues hash_of_values;

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

void hash_values(const std::vector<std::byte>& bytes) {
  if (!hash_of_values.wanted || std::this_thread::get_id() != hash_of_values.thread) return;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  hash_of_values.hash = fnv1a(text, hash_of_values.hash);
}

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
