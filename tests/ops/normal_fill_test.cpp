#include "ops/elementwise.h"

#include "base/philox.h"
#include "catch.h"
#include "op_values.h"

namespace normal_fill_test {

using namespace op_test;

namespace {

Values fill(const Kernels& kernels, std::int64_t first, std::int64_t count, int threads = 2) {
  Values x(Shape{count}, DType::f32);
  normal_fill(Host(kernels, threads).context(),
              {.x = x.tensor(), .seed = 11, .stream = 5, .first = first, .deviation = 0.02F});
  return x;
}

}  // namespace

TEST_CASE("normal_fill gives Philox's normal values to the last bit") {
  const auto first = GENERATE(0, 1, 6, 4295000001);
  for (const std::int64_t count : {1, 2, 3, 1000, 1001}) {
    const Values fast = fill(tested_kernels(), first, count);
    CHECK(fast == fill(plain_kernels, first, count));
    CHECK(fast == fill(tested_kernels(), first, count, 1));
    const float last = 0.02F * Philox(11, 5).normal(static_cast<std::uint64_t>(first + count - 1));
    CHECK(fast.at(count - 1) == last);
  }
}

TEST_CASE("normal_fill rounds each value once to bf16") {
  const Values wide = fill(plain_kernels, 5, 1001);
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Values narrow(Shape{1001}, DType::bf16);
    normal_fill(Host(*kernels).context(),
                {.x = narrow.tensor(), .seed = 11, .stream = 5, .first = 5, .deviation = 0.02F});
    std::int64_t others = 0;
    for (std::int64_t i = 0; i < 1001; ++i) {
      const float value = static_cast<float>(wide.at(i));
      if (narrow.at(i) != double{to_float(to_bf16(value))}) ++others;
    }
    CHECK(others == 0);
  }
}

TEST_CASE("normal_fill gives a shard the values that the whole has there") {
  const Values whole = fill(tested_kernels(), 0, 100);
  const Values shard = fill(tested_kernels(), 37, 20);
  for (std::int64_t i = 0; i < 20; ++i) CHECK(shard.at(i) == whole.at(37 + i));
}

TEST_CASE("normal_fill has the asked deviation") {
  const Values x = fill(tested_kernels(), 0, 100000);
  double sum = 0;
  double squares = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    sum += x.at(i);
    squares += x.at(i) * x.at(i);
  }
  CHECK(std::abs(sum / 1e5) < 3e-4);
  CHECK(std::sqrt(squares / 1e5) == Approx(0.02).epsilon(0.01));
}

TEST_CASE("normal_fill names what does not fit") {
  Values x(Shape{4}, DType::f16);
  CHECK(failure_of([&] { normal_fill(Host(tested_kernels()).context(), {.x = x.tensor()}); }) ==
        "[normal_fill] x must be fp32 or bf16: x [4] fp16");
}

}  // namespace normal_fill_test
