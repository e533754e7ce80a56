#include "catch.h"
#include "op_values.h"

namespace rope_test {

using namespace op_test;

namespace {

struct Problem {
  std::int64_t tokens, heads, head_dim;
  DType dtype;
  bool inverse = false;
};

Values table_of(std::int64_t positions, std::int64_t head_dim, const RopeScaling& scaling = {}) {
  Values table({positions, head_dim}, DType::f32);
  fill_rope_table(scaling, table.tensor());
  return table;
}

Values positions_of(std::int64_t tokens) {
  std::vector<std::int32_t> positions;
  for (std::int64_t i = 0; i < tokens; ++i) {
    positions.push_back(static_cast<std::int32_t>(i * 7 % 200));
  }
  return Values::of(positions);
}

Values inputs(const Problem& problem) {
  return Values::random({problem.tokens, problem.heads * problem.head_dim}, problem.dtype, 1);
}

Values run(const Kernels& kernels, const Problem& problem, Values x, int threads = 2) {
  const Host host(kernels, threads);
  Values table = table_of(200, problem.head_dim);
  Values position = positions_of(problem.tokens);
  rope(host.context(),
       {x.tensor(), position.tensor(), table.tensor(), problem.head_dim, problem.inverse});
  return x;
}

}  // namespace

TEST_CASE("rope agrees with the plain kernel") {
  for (const DType dtype : float_types) {
    for (const bool inverse : {false, true}) {
      for (const Problem& problem :
           {Problem{1, 1, 2, dtype, inverse}, Problem{5, 3, 14, dtype, inverse},
            Problem{64, 2, 64, dtype, inverse}, Problem{129, 6, 128, dtype, inverse}}) {
        INFO(problem.tokens << " tokens, head_dim " << problem.head_dim << " " << name_of(dtype));
        const Values got = run(tested_kernels(), problem, inputs(problem));
        CHECK(difference(got, run(plain_kernels, problem, inputs(problem))) < tolerance(dtype));
        CHECK(run(tested_kernels(), problem, inputs(problem), 1) == got);
      }
    }
  }
}

TEST_CASE("rope's inverse undoes it and is its transpose") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Problem forward{20, 2, 10, DType::f32, false};
    const Problem inverse{20, 2, 10, DType::f32, true};
    const Values x = inputs(forward);
    const Values y = run(*kernels, forward, x);
    CHECK(difference(y, x) > 0.1);
    CHECK(difference(run(*kernels, inverse, y), x) < 1e-6);
    const Values d = Values::random({20, 20}, DType::f32, 2);
    CHECK(weighted_sum(y, d) == Approx(weighted_sum(x, run(*kernels, inverse, d))).epsilon(1e-5));
  }
}

TEST_CASE("the rope table holds cosines, then sines") {
  const Values table = table_of(50, 8);
  for (std::int64_t position = 0; position < 50; ++position) {
    for (std::int64_t pair = 0; pair < 4; ++pair) {
      const double angle =
          static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(pair) / 4.0);
      CHECK(table.at(position * 8 + pair) == Approx(std::cos(angle)).margin(1e-7));
      CHECK(table.at(position * 8 + 4 + pair) == Approx(std::sin(angle)).margin(1e-7));
    }
  }
}

TEST_CASE("the rope table scales low frequencies as Llama 3 does") {
  const RopeScaling scaling{500000.0, 8.0, 1.0, 4.0, 8192.0};
  const Values table = table_of(2, 128, scaling);
  for (std::int64_t pair = 0; pair < 64; ++pair) {
    const double frequency = std::pow(500000.0, -static_cast<double>(pair) / 64.0);
    const double wavelength = 6.283185307179586 / frequency;
    double expected = frequency;
    if (wavelength > 8192.0) {
      expected = frequency / 8.0;
    } else if (wavelength >= 2048.0) {
      const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
      expected = (1.0 - smooth) * frequency / 8.0 + smooth * frequency;
    }
    CHECK(table.at(128 + 64 + pair) == Approx(std::sin(expected)).epsilon(1e-6));
  }
}

TEST_CASE("rope refuses what does not fit") {
  const Host host(tested_kernels());
  Values x({4, 12}, DType::f32);
  Values position = positions_of(4);
  Values table({30, 6}, DType::f32);
  const auto failure = [&](const auto& change) {
    Rope args{x.tensor(), position.tensor(), table.tensor(), 6, false};
    change(args);
    return failure_of([&] { rope(host.context(), args); });
  };
  CHECK(failure([](Rope&) {}).empty());
  CHECK(failure([](Rope& args) { args.head_dim = 3; }) ==
        "[rope] head_dim 3 must be even and divide the columns of x: x [4, 12] fp32");
  CHECK(failure([](Rope& args) { args.head_dim = 4; }) ==
        "[rope] table must be fp32 with head_dim columns: x [4, 12] fp32, table [30, 6] fp32");
  CHECK(failure([](Rope& args) { args.position = Tensor{}; }) ==
        "[rope] position must be an i32 vector with one element per row of x: x [4, 12] fp32, "
        "position (none)");
  CHECK(starts_with(failure_of([&] { fill_rope_table({}, position.tensor()); }),
                    "[fill_rope_table] table must be"));
}

}  // namespace rope_test
