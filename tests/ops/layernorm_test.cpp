#include "catch.h"
#include "op_values.h"

namespace layernorm_test {

using namespace op_test;

namespace {

struct Problem {
  std::int64_t rows, hidden;
  DType dtype;
  bool residual;
};

struct Tensors {
  Values x, residual, sum, weight, bias, y, mean, rstd, dy, d_residual, dx, dweight, dbias;
  explicit Tensors(const Problem& problem)
      : x(matrix(problem, 1)),
        residual(matrix(problem, 2)),
        sum(matrix(problem, 3)),
        weight(Values::random({problem.hidden}, DType::f32, 4)),
        bias(Values::random({problem.hidden}, DType::f32, 5)),
        y(matrix(problem, 6)),
        mean({problem.rows}, DType::f32),
        rstd({problem.rows}, DType::f32),
        dy(matrix(problem, 7)),
        d_residual(matrix(problem, 8)),
        dx(matrix(problem, 9)),
        dweight(Values::random({problem.hidden}, DType::f32, 10)),
        dbias(Values::random({problem.hidden}, DType::f32, 11)) {}
  static Values matrix(const Problem& problem, std::uint64_t stream) {
    return Values::random({problem.rows, problem.hidden}, problem.dtype, stream);
  }
  friend bool operator==(const Tensors&, const Tensors&) = default;
};

NormForward forward_args(Tensors& t, const Problem& problem) {
  NormForward args;
  args.kind = NormKind::layer_norm;
  args.x = t.x.tensor();
  if (problem.residual) {
    args.residual = t.residual.tensor();
    args.sum = t.sum.tensor();
  }
  args.weight = t.weight.tensor();
  args.bias = t.bias.tensor();
  args.y = t.y.tensor();
  args.mean = t.mean.tensor();
  args.rstd = t.rstd.tensor();
  args.epsilon = 1e-3F;
  return args;
}

NormBackward backward_args(Tensors& t, const Problem& problem) {
  NormBackward args;
  args.kind = NormKind::layer_norm;
  args.dy = t.dy.tensor();
  args.x = problem.residual ? t.sum.tensor() : t.x.tensor();
  args.weight = t.weight.tensor();
  args.mean = t.mean.tensor();
  args.rstd = t.rstd.tensor();
  if (problem.residual) args.d_residual = t.d_residual.tensor();
  args.dx = t.dx.tensor();
  args.dweight = t.dweight.tensor();
  args.dbias = t.dbias.tensor();
  return args;
}

Tensors run(const Kernels& kernels, const Problem& problem, int threads = 2) {
  const Host host(kernels, threads);
  Tensors tensors(problem);
  norm_forward(host.context(), forward_args(tensors, problem));
  norm_backward(host.context(), backward_args(tensors, problem));
  return tensors;
}

}  // namespace

TEST_CASE("layernorm agrees with the plain kernel") {
  for (const std::int64_t rows : {1, 5, 64, 129}) {
    for (const std::int64_t hidden : {1, 7, 128, 768}) {
      for (const DType dtype : float_types) {
        for (const bool residual : {false, true}) {
          const Problem problem{rows, hidden, dtype, residual};
          INFO(rows << " rows of " << hidden << " " << name_of(dtype) << " residual " << residual);
          const Tensors expected = run(plain_kernels, problem);
          const Tensors got = run(tested_kernels(), problem);
          const double allowed = tolerance(dtype);
          CHECK(difference(got.y, expected.y) < allowed);
          CHECK(difference(got.sum, expected.sum) == 0);
          CHECK(difference(got.mean, expected.mean) < 2e-6);
          CHECK(difference(got.rstd, expected.rstd) < 2e-6);
          // The gradient of a row of one element is a difference of equal terms.
          CHECK(difference(got.dx, expected.dx, hidden == 1 ? 30 : 1e-30) < 2 * allowed);
          CHECK(difference(got.dweight, expected.dweight) < 2e-6);
          CHECK(difference(got.dbias, expected.dbias) < 2e-6);
          CHECK(run(tested_kernels(), problem, 1) == got);
        }
      }
    }
  }
}

TEST_CASE("layernorm of many rows or of long ones agrees with the plain kernel") {
  for (const Problem& problem :
       {Problem{9001, 12, DType::bf16, false}, Problem{17, 25000, DType::f32, true}}) {
    const Tensors expected = run(plain_kernels, problem);
    const Tensors got = run(tested_kernels(), problem);
    // Long sums in another order differ by more than one rounding.
    const double allowed = std::max(tolerance(problem.dtype), 1e-5);
    CHECK(difference(got.y, expected.y) < allowed);
    CHECK(difference(got.dx, expected.dx) < 2 * allowed);
    CHECK(difference(got.dweight, expected.dweight) < 1e-5);
    CHECK(difference(got.dbias, expected.dbias) < 1e-5);
  }
}

TEST_CASE("layernorm of rows far from zero keeps its variance") {
  const Problem problem{3, 300, DType::f32, false};
  const Host host(tested_kernels());
  Tensors tensors(problem);
  for (std::int64_t i = 0; i < tensors.x.numel(); ++i) {
    tensors.x.set(i, 1000.0F + static_cast<float>(i % 2));
  }
  norm_forward(host.context(), forward_args(tensors, problem));
  for (std::int64_t row = 0; row < 3; ++row) {
    CHECK(tensors.rstd.at(row) == Approx(1.0 / std::sqrt(0.25 + 1e-3)).epsilon(1e-4));
  }
}

TEST_CASE("layernorm's gradients agree with finite differences") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Problem problem{3, 7, DType::f32, false};
    const Host host(*kernels);
    Tensors tensors(problem);
    tensors.dweight = Values({7}, DType::f32);
    tensors.dbias = Values({7}, DType::f32);
    norm_forward(host.context(), forward_args(tensors, problem));
    norm_backward(host.context(), backward_args(tensors, problem));
    Tensors probe = tensors;
    const auto loss = [&] {
      norm_forward(host.context(), forward_args(probe, problem));
      return weighted_sum(probe.y, probe.dy);
    };
    CHECK(slope_error(probe.x, tensors.dx, 1e-2F, loss) < 1e-3);
    CHECK(slope_error(probe.weight, tensors.dweight, 1e-2F, loss) < 1e-3);
    CHECK(slope_error(probe.bias, tensors.dbias, 1e-2F, loss) < 1e-3);
  }
}

TEST_CASE("layernorm's input gradient may take the place of dy or d_residual") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Problem problem{33, 130, DType::bf16, true};
    const Host host(*kernels);
    const Tensors apart = run(*kernels, problem);
    Tensors over_dy(problem);
    norm_forward(host.context(), forward_args(over_dy, problem));
    NormBackward args = backward_args(over_dy, problem);
    args.dx = args.dy;
    norm_backward(host.context(), args);
    CHECK(over_dy.dy == apart.dx);
    Tensors over_residual(problem);
    norm_forward(host.context(), forward_args(over_residual, problem));
    args = backward_args(over_residual, problem);
    args.dx = args.d_residual;
    norm_backward(host.context(), args);
    CHECK(over_residual.d_residual == apart.dx);
  }
}

TEST_CASE("layernorm refuses what does not fit") {
  const Host host(tested_kernels());
  const Problem problem{4, 7, DType::f32, true};
  Tensors tensors(problem);
  const auto forward = [&](const auto& change) {
    NormForward args = forward_args(tensors, problem);
    change(args);
    return failure_of([&] { norm_forward(host.context(), args); });
  };
  const auto backward = [&](const auto& change) {
    NormBackward args = backward_args(tensors, problem);
    change(args);
    return failure_of([&] { norm_backward(host.context(), args); });
  };
  CHECK(forward([](NormForward&) {}).empty());
  CHECK(backward([](NormBackward&) {}).empty());
  CHECK(forward([](NormForward& args) { args.y = args.y.slice(0, 2); }) ==
        "[layernorm] y must be as x: x [4, 7] fp32, y [2, 7] fp32");
  CHECK(forward([](NormForward& args) { args.sum = Tensor{}; }) ==
        "[layernorm] residual and sum must be as x: x [4, 7] fp32, residual [4, 7] fp32, sum "
        "(none)");
  CHECK(starts_with(forward([](NormForward& args) { args.bias = args.mean; }),
                    "[layernorm] weight and bias must be"));
  CHECK(starts_with(forward([](NormForward& args) { args.rstd = args.weight; }),
                    "[layernorm] mean and rstd must be"));
  CHECK(starts_with(backward([](NormBackward& args) { args.dx = Tensor{}; }),
                    "[layernorm_backward] dy and dx must be as x"));
  CHECK(starts_with(backward([](NormBackward& args) { args.dbias = Tensor{}; }),
                    "[layernorm_backward] weight, dweight and dbias must be"));
}

}  // namespace layernorm_test
