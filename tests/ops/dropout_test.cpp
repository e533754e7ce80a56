#include "catch.h"
#include "op_values.h"

namespace dropout_test {

using namespace op_test;

namespace {

const StepState state{.seed = 5, .step = 17};

struct Problem {
  std::int64_t rows, columns, first_feature, features;
  DType dtype;
  float probability = 0.3F;
  std::int64_t site = 2;
};

Values run(const Kernels& kernels, const Problem& problem, int threads = 2) {
  const Host host(kernels, threads);
  Values x = Values::random({problem.rows, problem.columns}, problem.dtype, 1);
  std::vector<std::int64_t> tokens;
  for (std::int64_t row = 0; row < problem.rows; ++row) tokens.push_back(5000000000 + 3 * row);
  Values token = Values::of(tokens);
  dropout(host.context(), {x.tensor(),
                           token.tensor(),
                           problem.first_feature,
                           problem.features,
                           {&state, problem.site, problem.probability}});
  return x;
}

}  // namespace

TEST_CASE("dropout agrees with the plain kernel to the bit") {
  for (const DType dtype : float_types) {
    for (const Problem& problem :
         {Problem{1, 1, 0, 1, dtype}, Problem{5, 7, 0, 7, dtype}, Problem{64, 128, 3, 150, dtype},
          Problem{129, 768, 0, 768, dtype, 0.9F}, Problem{3, 61, 64, 131, dtype}}) {
      INFO(problem.rows << " rows of " << problem.columns << " at " << problem.first_feature);
      const Values got = run(tested_kernels(), problem);
      CHECK(got == run(plain_kernels, problem));
      CHECK(got == run(tested_kernels(), problem, 1));
    }
  }
}

TEST_CASE("dropout keeps the right share and scales it") {
  const Problem problem{100, 300, 0, 300, DType::f32, 0.25F};
  const Values before = Values::random({100, 300}, DType::f32, 1);
  const Values after = run(tested_kernels(), problem);
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < after.numel(); ++i) {
    if (after.at(i) == 0.0) continue;
    ++kept;
    CHECK(after.at(i) == Approx(before.at(i) / 0.75));
  }
  CHECK(static_cast<double>(kept) / 30000.0 == Approx(0.75).margin(0.01));
}

TEST_CASE("dropout's mask belongs to the global element") {
  const Problem whole{6, 40, 0, 40, DType::f32};
  const Problem right{6, 24, 16, 40, DType::f32};
  const Values all = run(tested_kernels(), whole);
  const Values part = run(tested_kernels(), right);
  for (std::int64_t row = 0; row < 6; ++row) {
    for (std::int64_t i = 0; i < 24; ++i) {
      CHECK((part.at(row * 24 + i) == 0.0) == (all.at(row * 40 + 16 + i) == 0.0));
    }
  }
  Problem elsewhere = whole;
  elsewhere.site = 3;
  CHECK_FALSE(run(tested_kernels(), elsewhere) == all);
}

TEST_CASE("dropout drops infinities too") {
  const Host host(tested_kernels());
  Values x({1, 64}, DType::f32);
  for (std::int64_t i = 0; i < 64; ++i) x.set(i, INFINITY);
  Values token = Values::of<std::int64_t>({0});
  dropout(host.context(), {x.tensor(), token.tensor(), 0, 64, {&state, 0, 0.5F}});
  for (std::int64_t i = 0; i < 64; ++i) CHECK((x.at(i) == 0.0 || x.at(i) == INFINITY));
}

TEST_CASE("dropout refuses what does not fit") {
  const Host host(tested_kernels());
  Values x({4, 6}, DType::f32);
  Values token({4}, DType::i64);
  const auto failure = [&](const auto& change) {
    Dropout args{x.tensor(), token.tensor(), 0, 6, {&state, 0, 0.5F}};
    change(args);
    return failure_of([&] { dropout(host.context(), args); });
  };
  CHECK(failure([](Dropout&) {}).empty());
  CHECK(failure([](Dropout& args) { args.first_feature = 1; }) ==
        "[dropout] x does not fit into 6 features at feature 1: x [4, 6] fp32");
  CHECK(failure([](Dropout& args) { args.key.probability = 1.0F; }) ==
        "[dropout] probability 1.000000 is not in (0, 1): x [4, 6] fp32");
  CHECK(failure([](Dropout& args) { args.key.state = nullptr; }) ==
        "[dropout] key.state is missing: x [4, 6] fp32");
  CHECK(failure([](Dropout& args) { args.global_token = args.x; }) ==
        "[dropout] global_token must be an i64 vector with one element per row of x: x [4, 6] "
        "fp32, global_token [4, 6] fp32");
}

}  // namespace dropout_test
