#include "ops/optimizer.h"

#include "catch.h"
#include "op_values.h"

namespace square_sum_test {

using namespace op_test;

namespace {

double squares(const Kernels& kernels, Values x, int threads) {
  double result = 0.5;
  square_sum(Host(kernels, threads).context(),
             one<SquareSum>({.x = x.tensor(), .result = &result}));
  return result;
}

}  // namespace

TEST_CASE("square_sum adds to the result, the same with any number of threads") {
  const auto count = GENERATE(1, 4095, 4096, 4097, 50000);
  const Values x = Values::random(Shape{count}, DType::f32, 1);
  double expected = 0.5;
  for (std::int64_t i = 0; i < count; ++i) expected += x.at(i) * x.at(i);
  const double fast = squares(tested_kernels(), x, 1);
  CHECK(std::abs(fast - expected) <= 1e-13 * expected);
  CHECK(std::abs(squares(plain_kernels, x, 1) - expected) <= 1e-13 * expected);
  CHECK(squares(tested_kernels(), x, 2) == fast);
  CHECK(squares(tested_kernels(), x, 3) == fast);
}

TEST_CASE("square_sum adds squares of bf16 values as of the same values in fp32") {
  const auto count = GENERATE(1, 4097, 20000);
  const Values x = Values::random(Shape{count}, DType::bf16, 1);
  Values wide(Shape{count}, DType::f32);
  for (std::int64_t i = 0; i < count; ++i) wide.set(i, static_cast<float>(x.at(i)));
  CHECK(squares(tested_kernels(), x, 2) == squares(tested_kernels(), wide, 1));
  CHECK(squares(plain_kernels, x, 1) == squares(plain_kernels, wide, 1));
}

TEST_CASE("square_sum covers more blocks than it sums at once") {
  Values x(Shape{4096 * 513 + 5}, DType::f32);
  x.set(0, 1);
  x.set(x.numel() - 1, 2);
  x.set(4096 * 512, 3);
  CHECK(squares(tested_kernels(), x, 2) == 14.5);
}

TEST_CASE("square_sum names what is missing") {
  Values x(Shape{4}, DType::f16);
  double result = 0;
  const Host host(tested_kernels());
  CHECK(failure_of([&] {
          square_sum(host.context(), one<SquareSum>({.x = x.tensor(), .result = &result}));
        }) == "[square_sum] x must be an fp32 or bf16 vector: x [4] fp16");
  Values y(Shape{4}, DType::f32);
  CHECK(failure_of([&] { square_sum(host.context(), one<SquareSum>({.x = y.tensor()})); }) ==
        "[square_sum] result must be given");
}

}  // namespace square_sum_test
