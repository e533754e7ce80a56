#include "ops/elementwise.h"

#include "catch.h"
#include "op_values.h"

namespace add_test {

using namespace op_test;

TEST_CASE("add gives the plain sums, also in place") {
  const auto count = GENERATE(1, 7, 64, 4097, 20000);
  for (const DType type : float_types) {
    Values a = Values::random(Shape{count}, type, 1);
    Values b = Values::random(Shape{count}, type, 2);
    Values plain(Shape{count}, type);
    add(Host(plain_kernels).context(), {.a = a.tensor(), .b = b.tensor(), .y = plain.tensor()});
    CHECK(plain.at(0) == Approx(a.at(0) + b.at(0)).epsilon(1e-2));
    add(Host(tested_kernels()).context(), {.a = a.tensor(), .b = b.tensor(), .y = a.tensor()});
    CHECK(a == plain);
  }
}

TEST_CASE("add takes fp32 values to 16-bit ones and rounds the sum once") {
  const auto count = GENERATE(1, 7, 4097);
  for (const DType type : float_types) {
    Values a = Values::random(Shape{count}, type, 1);
    Values b = Values::random(Shape{count}, DType::f32, 2);
    Values plain(Shape{count}, type);
    Values expected(Shape{count}, type);
    for (std::int64_t i = 0; i < count; ++i) {
      expected.set(i, static_cast<float>(a.at(i)) + static_cast<float>(b.at(i)));
    }
    add(Host(plain_kernels).context(), {.a = a.tensor(), .b = b.tensor(), .y = plain.tensor()});
    CHECK(plain == expected);
    add(Host(tested_kernels()).context(), {.a = a.tensor(), .b = b.tensor(), .y = a.tensor()});
    CHECK(a == plain);
  }
}

TEST_CASE("add takes b times a factor, with a or alone, also in place") {
  const auto count = GENERATE(1, 7, 4097);
  for (const DType type : float_types) {
    Values a = Values::random(Shape{count}, type, 1);
    Values b = Values::random(Shape{count}, type, 2);
    Values sum(Shape{count}, type);
    Values scaled(Shape{count}, type);
    for (std::int64_t i = 0; i < count; ++i) {
      scaled.set(i, 0.22F * static_cast<float>(b.at(i)));
      sum.set(i, static_cast<float>(a.at(i) + double{0.22F} * b.at(i)));
    }
    for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
      Values got(Shape{count}, type);
      const Host host(*kernels);
      add(host.context(), {.a = a.tensor(), .b = b.tensor(), .y = got.tensor(), .factor = 0.22F});
      CHECK(difference(got, sum) < tolerance(type));
      Values alone = b;
      add(host.context(), {.a = {}, .b = alone.tensor(), .y = alone.tensor(), .factor = 0.22F});
      CHECK(alone == scaled);
    }
  }
}

TEST_CASE("add names what does not fit") {
  Values a(Shape{2, 3}, DType::f32);
  Values b(Shape{3, 2}, DType::f32);
  Values ids(Shape{2, 3}, DType::i32);
  const Host host(tested_kernels());
  CHECK(failure_of(
            [&] { add(host.context(), {.a = a.tensor(), .b = b.tensor(), .y = a.tensor()}); }) ==
        "[add] a, b and y must have the same shape, a and y the same type, b that type or fp32: "
        "a [2, 3] fp32, b [3, 2] fp32, y [2, 3] fp32");
  CHECK(failure_of([&] {
          add(host.context(), {.a = ids.tensor(), .b = ids.tensor(), .y = ids.tensor()});
        }) == "[add] a must be fp32, bf16 or fp16: a [2, 3] i32");
}

}  // namespace add_test
