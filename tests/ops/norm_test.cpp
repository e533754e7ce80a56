#include "catch.h"
#include "op_values.h"

namespace norm_test {

using namespace op_test;

namespace {

struct Problem {
  NormKind kind;
  std::int64_t rows, hidden;
  DType dtype;
  bool residual;
  bool zero_centered = false;
  float x_factor = 1;

  bool centers() const { return kind == NormKind::layer_norm; }
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
  args.kind = problem.kind;
  args.x = t.x.tensor();
  if (problem.residual) {
    args.residual = t.residual.tensor();
    args.sum = t.sum.tensor();
  }
  args.weight = t.weight.tensor();
  if (problem.centers()) args.bias = t.bias.tensor();
  args.y = t.y.tensor();
  if (problem.centers()) args.mean = t.mean.tensor();
  args.rstd = t.rstd.tensor();
  args.epsilon = 1e-3F;
  args.zero_centered = problem.zero_centered;
  args.x_factor = problem.x_factor;
  return args;
}

NormBackward backward_args(Tensors& t, const Problem& problem) {
  NormBackward args;
  args.kind = problem.kind;
  args.dy = t.dy.tensor();
  args.x = problem.residual ? t.sum.tensor() : t.x.tensor();
  args.weight = t.weight.tensor();
  if (problem.centers()) args.mean = t.mean.tensor();
  args.rstd = t.rstd.tensor();
  if (problem.residual) args.d_residual = t.d_residual.tensor();
  args.dx = t.dx.tensor();
  args.dweight = t.dweight.tensor();
  if (problem.centers()) args.dbias = t.dbias.tensor();
  args.zero_centered = problem.zero_centered;
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

TEST_CASE("layernorm and rmsnorm agree with the plain kernel") {
  const NormKind kind = GENERATE(NormKind::layer_norm, NormKind::rms_norm);
  for (const std::int64_t rows : {1, 5, 64, 129}) {
    for (const std::int64_t hidden : {1, 7, 128, 768}) {
      for (const DType dtype : float_types) {
        for (const bool residual : {false, true}) {
          const Problem problem{kind, rows, hidden, dtype, residual};
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

TEST_CASE("layernorm and rmsnorm of many rows or of long ones agree with the plain kernel") {
  const NormKind kind = GENERATE(NormKind::layer_norm, NormKind::rms_norm);
  for (const Problem& problem :
       {Problem{kind, 9001, 12, DType::bf16, false}, Problem{kind, 17, 25000, DType::f32, true}}) {
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
  const Problem problem{NormKind::layer_norm, 3, 300, DType::f32, false};
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

TEST_CASE("layernorm's and rmsnorm's gradients agree with finite differences") {
  const NormKind kind = GENERATE(NormKind::layer_norm, NormKind::rms_norm);
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Problem problem{kind, 3, 7, DType::f32, false};
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
    if (problem.centers()) CHECK(slope_error(probe.bias, tensors.dbias, 1e-2F, loss) < 1e-3);
  }
}

TEST_CASE("layernorm's and rmsnorm's input gradient may take the place of dy or d_residual") {
  const NormKind kind = GENERATE(NormKind::layer_norm, NormKind::rms_norm);
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Problem problem{kind, 33, 130, DType::bf16, true};
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

TEST_CASE("layernorm and rmsnorm refuse what does not fit") {
  const NormKind kind = GENERATE(NormKind::layer_norm, NormKind::rms_norm);
  const bool centers = kind == NormKind::layer_norm;
  const std::string name = centers ? "[layernorm" : "[rmsnorm";
  const Host host(tested_kernels());
  const Problem problem{kind, 4, 7, DType::f32, true};
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
        name + "] y must be as x: x [4, 7] fp32, y [2, 7] fp32");
  CHECK(forward([](NormForward& args) { args.sum = Tensor{}; }) ==
        name + "] residual and sum must be as x: x [4, 7] fp32, residual [4, 7] fp32, sum (none)");
  CHECK(starts_with(forward([](NormForward& args) { args.weight = args.rstd; }),
                    name + (centers ? "] weight and bias must be" : "] weight must be")));
  CHECK(starts_with(forward([](NormForward& args) { args.rstd = args.weight; }),
                    name + (centers ? "] mean and rstd must be" : "] rstd must be")));
  CHECK(starts_with(backward([](NormBackward& args) { args.dx = Tensor{}; }),
                    name + "_backward] dy and dx must be as x"));
  CHECK(starts_with(backward([](NormBackward& args) { args.dweight = Tensor{}; }),
                    name + (centers ? "_backward] weight, dweight and dbias must be"
                                    : "_backward] weight and dweight must be")));
  if (!centers) return;
  CHECK(starts_with(forward([](NormForward& args) { args.bias = args.mean; }),
                    "[layernorm] weight and bias must be"));
  CHECK(starts_with(backward([](NormBackward& args) { args.dbias = Tensor{}; }),
                    "[layernorm_backward] weight, dweight and dbias must be"));
}

TEST_CASE("rmsnorm without weights is that with weights of 1") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    for (const DType dtype : float_types) {
      for (const std::int64_t hidden : {7, 128}) {
        const Problem problem{NormKind::rms_norm, 65, hidden, dtype, false};
        const Host host(*kernels);
        Tensors ones(problem);
        for (std::int64_t i = 0; i < hidden; ++i) ones.weight.set(i, 1);
        Tensors none = ones;
        norm_forward(host.context(), forward_args(ones, problem));
        norm_backward(host.context(), backward_args(ones, problem));
        NormForward forward = forward_args(none, problem);
        forward.weight = {};
        NormBackward backward = backward_args(none, problem);
        backward.weight = backward.dweight = {};
        norm_forward(host.context(), forward);
        norm_backward(host.context(), backward);
        CHECK(difference(none.y, ones.y) < tolerance(dtype));
        CHECK(difference(none.rstd, ones.rstd) == 0);
        CHECK(difference(none.dx, ones.dx) < 2 * tolerance(dtype));
        CHECK(none.dweight == Tensors(problem).dweight);
      }
    }
  }
}

TEST_CASE("rmsnorm of rows that ranks divide is that of whole rows") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    for (const DType dtype : float_types) {
      for (const bool zero_centered : {false, true}) {
        const Problem whole{NormKind::rms_norm, 33, 96, dtype, false, zero_centered};
        const Host host(*kernels);
        Tensors expected(whole);
        norm_forward(host.context(), forward_args(expected, whole));
        norm_backward(host.context(), backward_args(expected, whole));
        const std::int64_t parts[] = {0, 64, 96};  // columns of two ranks
        std::vector<Tensors> ranks;
        Values sums({33}, DType::f32);
        Values gradient_sums({33}, DType::f32);
        const auto add_up = [&](Tensors& rank, const Tensor& dy, Values& total) {
          Values own({33}, DType::f32);
          norm_sums(host.context(), {.x = rank.x.tensor(),
                                     .dy = dy,
                                     .weight = rank.weight.tensor(),
                                     .sums = own.tensor(),
                                     .zero_centered = zero_centered});
          for (std::int64_t i = 0; i < 33; ++i) {
            total.set(i, static_cast<float>(total.at(i) + own.at(i)));
          }
        };
        const Tensors from(whole);
        for (int rank = 0; rank < 2; ++rank) {
          const std::int64_t hidden = parts[rank + 1] - parts[rank];
          Tensors& part = ranks.emplace_back(
              Problem{NormKind::rms_norm, 33, hidden, dtype, false, zero_centered});
          const auto take = [&](Values& to, const Values& all, std::int64_t rows) {
            for (std::int64_t i = 0; i < rows * hidden; ++i) {
              const std::int64_t at = i / hidden * 96 + parts[rank] + i % hidden;
              to.set(i, static_cast<float>(all.at(at)));
            }
          };
          take(part.x, from.x, 33);
          take(part.dy, from.dy, 33);
          take(part.weight, from.weight, 1);
          take(part.dweight, from.dweight, 1);
          add_up(part, {}, sums);
        }
        for (Tensors& part : ranks) add_up(part, part.dy.tensor(), gradient_sums);
        for (int rank = 0; rank < 2; ++rank) {
          Tensors& part = ranks[static_cast<std::size_t>(rank)];
          const std::int64_t hidden = parts[rank + 1] - parts[rank];
          const Problem problem{NormKind::rms_norm, 33, hidden, dtype, false, zero_centered};
          NormForward forward = forward_args(part, problem);
          forward.sums = sums.tensor();
          forward.features = 96;
          norm_forward(host.context(), forward);
          NormBackward backward = backward_args(part, problem);
          backward.sums = gradient_sums.tensor();
          backward.features = 96;
          norm_backward(host.context(), backward);
          const auto check = [&](const Values& got, const Values& all, std::int64_t rows,
                                 double allowed) {
            double most = 0;
            for (std::int64_t i = 0; i < rows * hidden; ++i) {
              const std::int64_t at = i / hidden * 96 + parts[rank] + i % hidden;
              most = std::max(most, std::abs(got.at(i) - all.at(at)));
            }
            CHECK(most < allowed);
          };
          check(part.y, expected.y, 33, 8 * tolerance(dtype));
          check(part.dx, expected.dx, 33, 16 * tolerance(dtype));
          check(part.dweight, expected.dweight, 1, 1e-4);
        }
      }
    }
  }
}

TEST_CASE("rmsnorm with zero-centred weights is that of 1 + weight, also after a scaled branch") {
  for (const DType dtype : float_types) {
    const Problem problem{NormKind::rms_norm, 9, 130, dtype, true, true, 0.25F};
    const Tensors expected = run(plain_kernels, problem);
    const Tensors got = run(tested_kernels(), problem);
    CHECK(difference(got.sum, expected.sum) < tolerance(dtype));
    CHECK(difference(got.y, expected.y) < tolerance(dtype));
    CHECK(difference(got.dx, expected.dx) < tolerance(dtype));
    CHECK(difference(got.dweight, expected.dweight) < tolerance(dtype));
  }
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Host host(*kernels);
    const Problem usual{NormKind::rms_norm, 3, 20, DType::f32, false};
    const Problem centred{NormKind::rms_norm, 3, 20, DType::f32, false, true};
    Tensors one(usual);
    Tensors zero(usual);
    for (std::int64_t i = 0; i < 20; ++i) {
      one.weight.set(i, 1 + static_cast<float>(zero.weight.at(i)));
    }
    norm_forward(host.context(), forward_args(one, usual));
    norm_forward(host.context(), forward_args(zero, centred));
    norm_backward(host.context(), backward_args(one, usual));
    norm_backward(host.context(), backward_args(zero, centred));
    CHECK(difference(zero.y, one.y) < 1e-6);
    CHECK(difference(zero.dx, one.dx) < 1e-6);
    CHECK(difference(zero.dweight, one.dweight) < 1e-6);
  }
}

}  // namespace norm_test
