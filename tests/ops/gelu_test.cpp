#include "catch.h"
#include "op_values.h"

namespace gelu_test {

using namespace op_test;

namespace {

struct Result {
  Values y, dx;
  friend bool operator==(const Result&, const Result&) = default;
};

Values inputs(const Shape& shape, DType dtype) { return Values::random(shape, dtype, 1, 3.0F); }

Result run(const Kernels& kernels, const Shape& shape, DType dtype, int threads = 2) {
  const Host host(kernels, threads);
  Values x = inputs(shape, dtype);
  Values dy = Values::random(shape, dtype, 2);
  Result result{Values(shape, dtype), Values(shape, dtype)};
  gelu_forward(host.context(), {x.tensor(), result.y.tensor()});
  gelu_backward(host.context(), {x.tensor(), dy.tensor(), result.dx.tensor()});
  return result;
}

}  // namespace

TEST_CASE("gelu agrees with the plain kernel") {
  for (const DType dtype : float_types) {
    for (const Shape& shape : {Shape{1}, Shape{5, 7}, Shape{64, 128}, Shape{3, 5, 769}}) {
      INFO(shape.to_string() << " " << name_of(dtype));
      const Result expected = run(plain_kernels, shape, dtype);
      const Result got = run(tested_kernels(), shape, dtype);
      CHECK(difference(got.y, expected.y) < tolerance(dtype));
      CHECK(difference(got.dx, expected.dx) < tolerance(dtype));
      CHECK(run(tested_kernels(), shape, dtype, 1) == got);
    }
  }
}

TEST_CASE("gelu has its limits far from zero") {
  const Host host(tested_kernels());
  Values x = Values::of<float>({-1e30F, -40.0F, 0.0F, 40.0F, 1e12F});
  Values y({5}, DType::f32);
  gelu_forward(host.context(), {x.tensor(), y.tensor()});
  CHECK(y.at(0) == 0.0);
  CHECK(y.at(1) == 0.0);
  CHECK(y.at(2) == 0.0);
  CHECK(y.at(3) == 40.0);
  CHECK(y.at(4) == Approx(1e12));
}

TEST_CASE("gelu's gradient agrees with finite differences") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Host host(*kernels);
    const Shape shape{40};
    const Result result = run(*kernels, shape, DType::f32);
    Values x = inputs(shape, DType::f32);
    const Values dy = Values::random(shape, DType::f32, 2);
    Values y(shape, DType::f32);
    const auto loss = [&] {
      gelu_forward(host.context(), {x.tensor(), y.tensor()});
      return weighted_sum(y, dy);
    };
    CHECK(slope_error(x, result.dx, 1e-2F, loss) < 1e-3);
  }
}

TEST_CASE("gelu's input gradient may take dy's place") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Host host(*kernels);
    const Shape shape{9, 501};
    Values x = inputs(shape, DType::bf16);
    Values dy = Values::random(shape, DType::bf16, 2);
    gelu_backward(host.context(), {x.tensor(), dy.tensor(), dy.tensor()});
    CHECK(dy == run(*kernels, shape, DType::bf16).dx);
  }
}

TEST_CASE("gelu refuses what does not fit") {
  const Host host(tested_kernels());
  Values x({2, 3}, DType::f32);
  Values other({3, 2}, DType::f32);
  Values number({2, 3}, DType::i32);
  CHECK(failure_of([&] {
          gelu_forward(host.context(), {x.tensor(), other.tensor()});
        }) == "[gelu] y must be as x: x [2, 3] fp32, y [3, 2] fp32");
  CHECK(failure_of([&] {
          gelu_forward(host.context(), {number.tensor(), number.tensor()});
        }) == "[gelu] x must be fp32, bf16 or fp16: x [2, 3] i32");
  CHECK(failure_of([&] {
          gelu_backward(host.context(), {x.tensor(), x.tensor(), Tensor{}});
        }) == "[gelu_backward] dy and dx must be as x: x [2, 3] fp32, dy [2, 3] fp32, dx (none)");
}

}  // namespace gelu_test
