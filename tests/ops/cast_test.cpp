#include "ops/elementwise.h"

#include <limits>

#include "catch.h"
#include "op_values.h"

namespace cast_test {

using namespace op_test;

TEST_CASE("cast gives the plain values") {
  const auto count = GENERATE(1, 33, 5000);
  for (const DType from : float_types) {
    for (const DType to : float_types) {
      Values x = Values::random(Shape{count}, from, 1);
      Values plain(Shape{count}, to);
      Values fast(Shape{count}, to);
      cast(Host(plain_kernels).context(), {.x = x.tensor(), .y = plain.tensor()});
      cast(Host(tested_kernels()).context(), {.x = x.tensor(), .y = fast.tensor()});
      CHECK(fast == plain);
    }
  }
}

TEST_CASE("cast rounds to nearest even and keeps infinities and NaNs") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Values x = Values::of<float>({1.00390625F, 1.01171875F, -infinity, NAN, 3.4e38F});
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Values y(Shape{5}, DType::bf16);
    cast(Host(*kernels).context(), {.x = x.tensor(), .y = y.tensor()});
    CHECK(y.at(0) == 1.0);       // halfway between 1 and 1 + 1/128
    CHECK(y.at(1) == 1.015625);  // halfway between 1 + 1/128 and 1 + 2/128
    CHECK(y.at(2) == -infinity);
    CHECK(std::isnan(y.at(3)));
    CHECK(y.at(4) == infinity);
    Values half(Shape{5}, DType::f16);
    x.set(0, 1.00048828125F);  // halfway between 1 and 1 + 1/1024
    x.set(1, 65519.0F);        // the last before it rounds up to 65536, which is beyond the range
    cast(Host(*kernels).context(), {.x = x.tensor(), .y = half.tensor()});
    CHECK(half.at(0) == 1.0);
    CHECK(half.at(1) == 65504.0);
    CHECK(half.at(2) == -infinity);
    CHECK(std::isnan(half.at(3)));
    CHECK(half.at(4) == infinity);
    x.set(0, 1.00390625F);
    x.set(1, 1.01171875F);
  }
}

TEST_CASE("cast names what does not fit") {
  Values x(Shape{4}, DType::f32);
  Values y(Shape{5}, DType::bf16);
  CHECK(failure_of([&] {
          cast(Host(tested_kernels()).context(), {.x = x.tensor(), .y = y.tensor()});
        }) == "[cast] x and y must have the same number of elements: x [4] fp32, y [5] bf16");
}

}  // namespace cast_test
