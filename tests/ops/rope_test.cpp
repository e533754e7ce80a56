#include "catch.h"
#include "op_values.h"

namespace rope_test {

using namespace op_test;

namespace {

struct Problem {
  std::int64_t tokens, heads, head_dim;
  DType dtype;
  bool inverse = false;
  std::int64_t size = 0;  // of a head that turns; 0: all
  bool adjacent = false;
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
  Values table = table_of(200, problem.size > 0 ? problem.size : problem.head_dim);
  Values position = positions_of(problem.tokens);
  rope(host.context(), {x.tensor(), position.tensor(), table.tensor(), problem.head_dim,
                        problem.inverse, problem.adjacent});
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

TEST_CASE("rope of a part of each head, and of neighbours, agrees with the plain kernel") {
  for (const DType dtype : float_types) {
    for (const bool adjacent : {false, true}) {
      for (const Problem& problem : {Problem{5, 3, 14, dtype, false, 6, adjacent},
                                     Problem{33, 2, 64, dtype, true, 32, adjacent},
                                     Problem{9, 2, 20, dtype, false, 16, adjacent},
                                     Problem{64, 2, 128, dtype, false, 0, adjacent}}) {
        INFO("head_dim " << problem.head_dim << " size " << problem.size << " adjacent " << adjacent
                         << " " << name_of(dtype));
        const Values got = run(tested_kernels(), problem, inputs(problem));
        CHECK(difference(got, run(plain_kernels, problem, inputs(problem))) < tolerance(dtype));
        CHECK(run(tested_kernels(), problem, inputs(problem), 1) == got);
      }
    }
  }
}

TEST_CASE("rope turns the first features of each head, halves or neighbours") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    Values position = Values::of<std::int32_t>({1});
    Values table = table_of(2, 4);
    const double cosine = std::cos(1.0);
    const double sine = std::sin(1.0);
    for (const bool adjacent : {false, true}) {
      Values x = Values::of<float>({1, 2, 3, 4, 5, 6});
      Tensor row = x.tensor().view({1, 6});
      rope(Host(*kernels).context(), {row, position.tensor(), table.tensor(), 6, false, adjacent});
      const double partner = adjacent ? 2 : 3;
      CHECK(x.at(0) == Approx(cosine - partner * sine).epsilon(1e-6));
      CHECK(x.at(adjacent ? 1 : 2) == Approx(partner * cosine + sine).epsilon(1e-6));
      CHECK(x.at(4) == 5);
      CHECK(x.at(5) == 6);
    }
  }
}

TEST_CASE("a temperature multiplies by a factor that grows with the position, back as well") {
  Values table({20, 6}, DType::f32);
  fill_temperature_table(0.5, 8, 1, table.tensor());
  const auto factor = [](int position) { return 1 + 0.5 * std::log(1 + (position + 1) / 8); };
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    for (const bool inverse : {false, true}) {
      for (const bool adjacent : {false, true}) {
        Values position = Values::of<std::int32_t>({0, 6, 7, 15, 19});
        Values x = Values::random({5, 12}, DType::f32, 1);
        const Values before = x;
        rope(Host(*kernels).context(),
             {x.tensor(), position.tensor(), table.tensor(), 6, inverse, adjacent});
        const int places[] = {0, 6, 7, 15, 19};
        for (std::int64_t i = 0; i < x.numel(); ++i) {
          CHECK(x.at(i) == Approx(before.at(i) * factor(places[i / 12])).epsilon(1e-6));
        }
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
  const RopeScaling scaling{
      .type = RopeType::llama3, .theta = 500000.0, .factor = 8.0, .pair_factor = {}};
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

/// amplitude sin(3 f) for the four pairs of a table of 8 columns.
void check_sines(const RopeScaling& scaling, const std::vector<double>& expected) {
  const Values table = table_of(4, 8, scaling);
  for (std::int64_t pair = 0; pair < 4; ++pair) {
    INFO("pair " << pair);
    CHECK(table.at(3 * 8 + 4 + pair) ==
          Approx(expected[static_cast<std::size_t>(pair)]).margin(1e-7));
  }
}

// The numbers are those of forms in double precision, checked against the logits of transformers.
TEST_CASE("the rope table scales frequencies by each type's rule") {
  check_sines({.type = RopeType::linear, .factor = 4, .pair_factor = {}},
              {0.681638760, 0.074929707, 0.007499930, 0.000750000});
  check_sines({.type = RopeType::alpha, .alpha = 1000, .pair_factor = {}},
              {0.141120008, 0.029995500, 0.000300000, 0.000003000});
  check_sines({.type = RopeType::yarn,
               .factor = 4,
               .original_positions = 64,
               .pair_factor = {},
               .amplitude = 0.1 * std::log(4) + 1},
              {0.160683395, 0.212244281, 0.008539641, 0.000853972});
  check_sines({.type = RopeType::yarn,
               .theta = 150000,
               .factor = 32,
               .original_positions = 4096,
               .truncate = false,
               .pair_factor = {},
               .amplitude = 0.1 * std::log(32) + 1},
              {0.190028476, 0.204477352, 0.001844067, 0.000016563});
  check_sines(
      {.type = RopeType::longrope, .pair_factor = {1, 2, 4, 8}, .amplitude = 2},
      {2 * std::sin(3.0), 2 * std::sin(0.15), 2 * std::sin(0.0075), 2 * std::sin(0.003 / 8)});
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
        "[rope] table must be fp32 with an even number of columns, at most head_dim: x [4, 12] "
        "fp32, table [30, 6] fp32");
  CHECK(failure([](Rope& args) { args.position = Tensor{}; }) ==
        "[rope] position must be an i32 vector with one element per row of x: x [4, 12] fp32, "
        "position (none)");
  CHECK(starts_with(failure_of([&] {
                      fill_rope_table({.type = RopeType::longrope, .pair_factor = {}},
                                      table.tensor());
                    }),
                    "[fill_rope_table] longrope needs a factor for each pair of the table"));
  CHECK(starts_with(failure_of([&] { fill_rope_table({}, position.tensor()); }),
                    "[fill_rope_table] table must be"));
}

}  // namespace rope_test
