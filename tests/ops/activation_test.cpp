#include "ops/activation.h"
#include "catch.h"
#include "op_values.h"

namespace activation_test {

using namespace op_test;

namespace {

constexpr Activation kinds[] = {Activation::gelu, Activation::silu, Activation::relu2,
                                Activation::quick_gelu, Activation::sigmoid};

struct Result {
  Values y, dx, dup;
  friend bool operator==(const Result&, const Result&) = default;
};

struct Problem {
  Activation kind;
  bool gated;
  Shape shape;
  DType dtype;
  GateForm form{};
  std::string name() const {
    return std::string(name_of_forward(kind, gated)) + " " + shape.to_string() + " " +
           std::string(name_of(dtype));
  }
};

struct Operands {
  Values x, up, dy;
  explicit Operands(const Problem& problem)
      : x(Values::random(problem.shape, problem.dtype, 1, 3.0F)),
        up(Values::random(problem.shape, problem.dtype, 2)),
        dy(Values::random(problem.shape, problem.dtype, 3)) {}
};

void forward(const Host& host, const Problem& problem, Operands& in, Values& y) {
  activation_forward(host.context(), {.kind = problem.kind,
                                      .x = in.x.tensor(),
                                      .y = y.tensor(),
                                      .up = problem.gated ? in.up.tensor() : Tensor{},
                                      .form = problem.form});
}

void backward(const Host& host, const Problem& problem, Operands& in, Values& dx, Values& dup) {
  activation_backward(host.context(), {.kind = problem.kind,
                                       .x = in.x.tensor(),
                                       .dy = in.dy.tensor(),
                                       .dx = dx.tensor(),
                                       .up = problem.gated ? in.up.tensor() : Tensor{},
                                       .dup = problem.gated ? dup.tensor() : Tensor{},
                                       .form = problem.form});
}

Result run(const Kernels& kernels, const Problem& problem, int threads = 2) {
  const Host host(kernels, threads);
  Operands in(problem);
  Result result{Values(problem.shape, problem.dtype), Values(problem.shape, problem.dtype),
                Values(problem.shape, problem.dtype)};
  forward(host, problem, in, result.y);
  backward(host, problem, in, result.dx, result.dup);
  return result;
}

double value_at(Activation kind, float x) {
  const Host host(tested_kernels());
  Values in = Values::of<float>({x});
  Values y({1}, DType::f32);
  activation_forward(host.context(), {.kind = kind, .x = in.tensor(), .y = y.tensor()});
  return y.at(0);
}

}  // namespace

TEST_CASE("activations agree with the plain kernel") {
  for (const Activation kind : kinds) {
    for (const bool gated : {false, true}) {
      for (const DType dtype : float_types) {
        for (const Shape& shape : {Shape{1}, Shape{5, 7}, Shape{64, 128}, Shape{3, 5, 769}}) {
          const Problem problem{kind, gated, shape, dtype};
          INFO(problem.name());
          const Result expected = run(plain_kernels, problem);
          const Result got = run(tested_kernels(), problem);
          CHECK(difference(got.y, expected.y) < tolerance(dtype));
          CHECK(difference(got.dx, expected.dx) < tolerance(dtype));
          CHECK(difference(got.dup, expected.dup) < tolerance(dtype));
          const Result alone = run(tested_kernels(), problem, 1);
          CHECK(difference(alone.y, got.y) == 0);
          CHECK(alone.y == got.y);
          CHECK(alone.dx == got.dx);
          CHECK(alone.dup == got.dup);
        }
      }
    }
  }
}

TEST_CASE("gated activations with an offset and a limit agree with the plain kernel") {
  for (const GateForm form : {GateForm{1, 0}, GateForm{0, 1.5F}, GateForm{1, 0.75F}}) {
    for (const Activation kind : kinds) {
      for (const DType dtype : float_types) {
        const Problem problem{kind, true, {5, 769}, dtype, form};
        INFO(problem.name() << " offset " << form.offset << " limit " << form.limit);
        const Result expected = run(plain_kernels, problem);
        const Result got = run(tested_kernels(), problem);
        CHECK(difference(got.y, expected.y) < tolerance(dtype));
        CHECK(difference(got.dx, expected.dx) < tolerance(dtype));
        CHECK(difference(got.dup, expected.dup) < tolerance(dtype));
        CHECK(run(tested_kernels(), problem, 1) == got);
      }
    }
  }
}

TEST_CASE("a gated activation's limit stops values and gradients, and lets them pass at it") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Host host(*kernels);
    // x sigmoid(1.702 x) (u + 1), limit 7: the values of GPT-OSS.
    Values x = Values::of<float>({1, 7, 9, 1, 1, -9});
    Values up = Values::of<float>({0.5F, 7, 2, 8, -8, -7});
    Values ones = Values::of<float>({1, 1, 1, 1, 1, 1});
    Values y({6}, DType::f32);
    Values dx({6}, DType::f32);
    Values dup({6}, DType::f32);
    const GateForm form{1, 7};
    activation_forward(host.context(), {.kind = Activation::quick_gelu,
                                        .x = x.tensor(),
                                        .y = y.tensor(),
                                        .up = up.tensor(),
                                        .form = form});
    activation_backward(host.context(), {.kind = Activation::quick_gelu,
                                         .x = x.tensor(),
                                         .dy = ones.tensor(),
                                         .dx = dx.tensor(),
                                         .up = up.tensor(),
                                         .dup = dup.tensor(),
                                         .form = form});
    const double at_one = 1 / (1 + std::exp(-1.702));
    const double at_limit = 7 / (1 + std::exp(-1.702 * 7));
    CHECK(y.at(0) == Approx(1.5 * at_one).epsilon(1e-6));
    CHECK(y.at(1) == Approx(8 * at_limit).epsilon(1e-6));
    CHECK(y.at(2) == Approx(3 * at_limit).epsilon(1e-6));
    CHECK(y.at(3) == Approx(8 * at_one).epsilon(1e-6));
    CHECK(y.at(4) == Approx(-6 * at_one).epsilon(1e-6));
    CHECK(dx.at(1) != 0);
    CHECK(dx.at(2) == 0);
    CHECK(dx.at(5) != 0);
    CHECK(dup.at(1) == Approx(at_limit).epsilon(1e-6));
    CHECK(dup.at(3) == 0);
    CHECK(dup.at(4) == 0);
    CHECK(dup.at(5) != 0);
  }
}

TEST_CASE("activations have known values, and their limits far from zero") {
  CHECK(value_at(Activation::gelu, -1e30F) == 0.0);
  CHECK(value_at(Activation::gelu, -40.0F) == 0.0);
  CHECK(value_at(Activation::gelu, 0.0F) == 0.0);
  CHECK(value_at(Activation::gelu, 1.0F) == Approx(0.841192).epsilon(1e-5));
  CHECK(value_at(Activation::gelu, 40.0F) == 40.0);
  CHECK(value_at(Activation::gelu, 1e12F) == Approx(1e12));
  CHECK(std::abs(value_at(Activation::silu, -200.0F)) < 1e-30);
  CHECK(value_at(Activation::silu, 1.0F) == Approx(0.731059).epsilon(1e-5));
  CHECK(value_at(Activation::silu, 200.0F) == 200.0);
  CHECK(value_at(Activation::relu2, -3.0F) == 0.0);
  CHECK(value_at(Activation::relu2, 3.0F) == 9.0);
  CHECK(value_at(Activation::quick_gelu, 1.0F) == Approx(0.845796).epsilon(1e-5));
  CHECK(std::abs(value_at(Activation::quick_gelu, -200.0F)) < 1e-30);
  CHECK(value_at(Activation::sigmoid, 0.0F) == 0.5);
  CHECK(value_at(Activation::sigmoid, 1.0F) == Approx(0.731059).epsilon(1e-5));
  CHECK(value_at(Activation::sigmoid, 200.0F) == 1);
}

TEST_CASE("the gradient of up may take the place of dy") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    for (const DType dtype : float_types) {
      const Problem problem{Activation::sigmoid, true, {5, 769}, dtype};
      const Host host(*kernels);
      Operands in(problem);
      Values dx(problem.shape, dtype);
      backward(host, problem, in, dx, in.dy);
      const Result apart = run(*kernels, problem);
      CHECK(dx == apart.dx);
      CHECK(in.dy == apart.dup);
    }
  }
}

TEST_CASE("the gradients of activations agree with finite differences") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    for (const Activation kind : kinds) {
      for (const bool gated : {false, true}) {
        const Problem problem{kind, gated, Shape{40}, DType::f32,
                              gated ? GateForm{0.5F, 0} : GateForm{}};
        INFO(problem.name());
        const Host host(*kernels);
        const Result result = run(*kernels, problem);
        Operands in(problem);
        Values y(problem.shape, DType::f32);
        const auto loss = [&] {
          forward(host, problem, in, y);
          return weighted_sum(y, in.dy);
        };
        CHECK(slope_error(in.x, result.dx, 1e-2F, loss) < 1e-3);
        if (gated) CHECK(slope_error(in.up, result.dup, 1e-2F, loss) < 1e-3);
      }
    }
  }
}

TEST_CASE("an activation's input gradient may take dy's place") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    for (const Activation kind : kinds) {
      for (const bool gated : {false, true}) {
        const Problem problem{kind, gated, Shape{9, 501}, DType::bf16};
        INFO(problem.name());
        const Result apart = run(*kernels, problem);
        Operands in(problem);
        Values dup(problem.shape, DType::bf16);
        backward(Host(*kernels), problem, in, in.dy, dup);
        CHECK(in.dy == apart.dx);
        CHECK(dup == apart.dup);
      }
    }
  }
}

TEST_CASE("activations refuse what does not fit, by their names") {
  const Host host(tested_kernels());
  Values x({2, 3}, DType::f32);
  Values half({2, 3}, DType::bf16);
  Values other({3, 2}, DType::f32);
  Values number({2, 3}, DType::i32);
  const auto refused = [&](const ActivationArgs& args) {
    return failure_of([&] { activation_forward(host.context(), args); });
  };
  CHECK(refused({.kind = Activation::gelu, .x = x.tensor(), .y = other.tensor()}) ==
        "[gelu] y must be as x: x [2, 3] fp32, y [3, 2] fp32");
  CHECK(refused({.kind = Activation::gelu, .x = number.tensor(), .y = number.tensor()}) ==
        "[gelu] x must be fp32, bf16 or fp16: x [2, 3] i32");
  CHECK(
      refused({.kind = Activation::silu, .x = x.tensor(), .y = x.tensor(), .up = half.tensor()}) ==
      "[swiglu] up must be as x: x [2, 3] fp32, up [2, 3] bf16");
  CHECK(failure_of([&] {
          activation_backward(
              host.context(),
              {.kind = Activation::relu2, .x = x.tensor(), .dy = x.tensor(), .dx = Tensor{}});
        }) == "[relu2_backward] dy and dx must be as x: x [2, 3] fp32, dy [2, 3] fp32, dx (none)");
  CHECK(failure_of([&] {
          activation_backward(host.context(), {.kind = Activation::silu,
                                               .x = x.tensor(),
                                               .dy = x.tensor(),
                                               .dx = x.tensor(),
                                               .up = x.tensor()});
        }) ==
        "[swiglu_backward] up and dup must be as x, or both absent: x [2, 3] fp32, up [2, 3] "
        "fp32, dup (none)");
}

}  // namespace activation_test
