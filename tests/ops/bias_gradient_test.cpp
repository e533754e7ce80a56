#include "ops/rows.h"

#include "catch.h"
#include "op_values.h"

namespace bias_gradient_test {

using namespace op_test;

namespace {

Values sum_rows(const Kernels& kernels, Values dy, std::int64_t features, int threads) {
  Values db = Values::random(Shape{features}, DType::f32, 9);
  bias_gradient(Host(kernels, threads).context(), {.dy = dy.tensor(), .db = db.tensor()});
  return db;
}

}  // namespace

TEST_CASE("bias_gradient adds the plain column sums, with any number of threads") {
  const auto shape =
      GENERATE(Shape{1, 1}, Shape{3, 7}, Shape{130, 515}, Shape{500, 64}, Shape{257, 1100});
  for (const DType type : float_types) {
    const Values dy = Values::random(shape, type, 1);
    const Values fast = sum_rows(tested_kernels(), dy, shape[1], 2);
    CHECK(difference(fast, sum_rows(plain_kernels, dy, shape[1], 1)) < 2e-6);
    CHECK(fast == sum_rows(tested_kernels(), dy, shape[1], 1));
    CHECK(fast == sum_rows(tested_kernels(), dy, shape[1], 3));
  }
}

TEST_CASE("bias_gradient names what does not fit") {
  Values dy(Shape{4, 3}, DType::f32);
  Values db(Shape{4}, DType::f32);
  CHECK(failure_of([&] {
          bias_gradient(Host(tested_kernels()).context(), {.dy = dy.tensor(), .db = db.tensor()});
        }) ==
        "[bias_gradient] db must be an fp32 vector with one element per column of dy: "
        "dy [4, 3] fp32, db [4] fp32");
}

}  // namespace bias_gradient_test
