#include "catch.h"
#include "op_values.h"

namespace swiglu_test {

using namespace op_test;

namespace {

struct Result {
  Values y, dgate, dup;
  friend bool operator==(const Result&, const Result&) = default;
};

struct Inputs {
  Values gate, up, dy;
  Inputs(const Shape& shape, DType dtype)
      : gate(Values::random(shape, dtype, 1, 3.0F)),
        up(Values::random(shape, dtype, 2)),
        dy(Values::random(shape, dtype, 3)) {}
};

Result run(const Kernels& kernels, const Shape& shape, DType dtype, int threads = 2) {
  const Host host(kernels, threads);
  Inputs in(shape, dtype);
  Result result{Values(shape, dtype), Values(shape, dtype), Values(shape, dtype)};
  swiglu_forward(host.context(), {in.gate.tensor(), in.up.tensor(), result.y.tensor()});
  swiglu_backward(host.context(), {in.gate.tensor(), in.up.tensor(), in.dy.tensor(),
                                   result.dgate.tensor(), result.dup.tensor()});
  return result;
}

}  // namespace

TEST_CASE("swiglu agrees with the plain kernel") {
  for (const DType dtype : float_types) {
    for (const Shape& shape : {Shape{1}, Shape{5, 7}, Shape{64, 128}, Shape{3, 5, 769}}) {
      INFO(shape.to_string() << " " << name_of(dtype));
      const Result expected = run(plain_kernels, shape, dtype);
      const Result got = run(tested_kernels(), shape, dtype);
      CHECK(difference(got.y, expected.y) < tolerance(dtype));
      CHECK(difference(got.dgate, expected.dgate) < tolerance(dtype));
      CHECK(difference(got.dup, expected.dup) < tolerance(dtype));
      CHECK(run(tested_kernels(), shape, dtype, 1) == got);
    }
  }
}

TEST_CASE("swiglu has its limits far from zero") {
  const Host host(tested_kernels());
  Values gate = Values::of<float>({-200.0F, 200.0F});
  Values up = Values::of<float>({3.0F, 3.0F});
  Values y({2}, DType::f32);
  swiglu_forward(host.context(), {gate.tensor(), up.tensor(), y.tensor()});
  CHECK(std::abs(y.at(0)) < 1e-30);
  CHECK(y.at(1) == 600.0);
}

TEST_CASE("swiglu's gradients agree with finite differences") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Host host(*kernels);
    const Shape shape{40};
    const Result result = run(*kernels, shape, DType::f32);
    Inputs in(shape, DType::f32);
    Values y(shape, DType::f32);
    const auto loss = [&] {
      swiglu_forward(host.context(), {in.gate.tensor(), in.up.tensor(), y.tensor()});
      return weighted_sum(y, in.dy);
    };
    CHECK(slope_error(in.gate, result.dgate, 1e-2F, loss) < 1e-3);
    CHECK(slope_error(in.up, result.dup, 1e-2F, loss) < 1e-3);
  }
}

TEST_CASE("swiglu's gate gradient may take dy's place") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Host host(*kernels);
    const Shape shape{9, 501};
    const Result apart = run(*kernels, shape, DType::bf16);
    Inputs in(shape, DType::bf16);
    Values dup(shape, DType::bf16);
    swiglu_backward(host.context(), {in.gate.tensor(), in.up.tensor(), in.dy.tensor(),
                                     in.dy.tensor(), dup.tensor()});
    CHECK(in.dy == apart.dgate);
    CHECK(dup == apart.dup);
  }
}

TEST_CASE("swiglu refuses what does not fit") {
  const Host host(tested_kernels());
  Values x({2, 3}, DType::f32);
  Values half({2, 3}, DType::bf16);
  CHECK(failure_of([&] {
          swiglu_forward(host.context(), {x.tensor(), half.tensor(), x.tensor()});
        }) == "[swiglu] up and y must be as gate: gate [2, 3] fp32, up [2, 3] bf16, y [2, 3] fp32");
  CHECK(
      failure_of([&] {
        swiglu_backward(host.context(), {x.tensor(), x.tensor(), x.tensor(), x.tensor(), Tensor{}});
      }) ==
      "[swiglu_backward] dgate and dup must be as gate: gate [2, 3] fp32, dgate [2, 3] "
      "fp32, dup (none)");
}

}  // namespace swiglu_test
