#include "ops/optimizer.h"

#include <cmath>

#include "catch.h"
#include "op_values.h"

namespace adamw_test {

using namespace op_test;

namespace {

struct Operands {
  Values parameter, gradient, m, v, compute;

  explicit Operands(std::int64_t count, DType copy = DType::bf16, DType gradients = DType::f32)
      : parameter(Values::random(Shape{count}, DType::f32, 1)),
        gradient(Values::random(Shape{count}, gradients, 2)),
        m(Values::random(Shape{count}, DType::f32, 3, 0.1F)),
        v(Shape{count}, DType::f32),
        compute(Shape{count}, copy) {
    for (std::int64_t i = 0; i < count; ++i) {
      v.set(i, static_cast<float>(m.at(i) * m.at(i)) * 1.5F);
    }
  }

  Update args(const StepState& state, bool with_compute) {
    return {.parameter = parameter.tensor(),
            .gradient = gradient.tensor(),
            .states = {m.tensor(), v.tensor()},
            .compute = with_compute ? compute.tensor() : Tensor{},
            .constants = {.beta1 = 0.9F, .beta2 = 0.99F, .epsilon = 1e-8F},
            .decay = true,
            .state = &state};
  }
};

}  // namespace

TEST_CASE("adamw makes the plain update") {
  const auto count = GENERATE(1, 15, 4097, 10000);
  const bool with_compute = GENERATE(false, true);
  const DType copy = GENERATE(DType::bf16, DType::f16);
  const DType gradients = GENERATE(DType::f32, DType::bf16);
  const StepState state = adamw_step_state();
  Operands fast(count, copy, gradients);
  Operands plain(count, copy, gradients);
  update(Host(tested_kernels()).context(), one(fast.args(state, with_compute)));
  update(Host(plain_kernels).context(), one(plain.args(state, with_compute)));
  CHECK(difference(fast.parameter, plain.parameter) < 1e-6);
  CHECK(difference(fast.m, plain.m) < 1e-6);
  CHECK(difference(fast.v, plain.v) < 1e-6);
  Values expected(Shape{count}, copy);
  for (std::int64_t i = 0; with_compute && i < count; ++i) {
    expected.set(i, static_cast<float>(fast.parameter.at(i)));
  }
  CHECK(fast.compute == expected);
}

TEST_CASE("adamw's first step moves each parameter by the learning rate") {
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Values parameter = Values::of<float>({1, 1});
    Values gradient = Values::of<float>({3, -0.001F});
    Values m(Shape{2}, DType::f32);
    Values v(Shape{2}, DType::f32);
    StepState state;
    state.learning_rate = 0.125F;
    state.weight_decay = 0.5F;
    state.bias_correction1 = 0.1F;
    state.bias_correction2 = 0.001F;
    update(Host(*kernels).context(), one<Update>({.parameter = parameter.tensor(),
                                                  .gradient = gradient.tensor(),
                                                  .states = {m.tensor(), v.tensor()},
                                                  .state = &state}));
    CHECK(parameter.at(0) == Approx(0.875).epsilon(1e-5));  // no decay unless asked
    CHECK(parameter.at(1) == Approx(1.125).epsilon(1e-4));
    CHECK(m.at(0) == Approx(0.3).epsilon(1e-5));
    CHECK(v.at(0) == Approx(0.009).epsilon(1e-4));
  }
}

TEST_CASE("adamw names what does not fit") {
  const StepState state = adamw_step_state();
  const Host host(tested_kernels());
  Operands operands(4);
  Values shorter(Shape{3}, DType::f32);
  Update args = operands.args(state, true);
  args.states[1] = shorter.tensor();
  CHECK(failure_of([&] { update(host.context(), one(args)); }) ==
        "[adamw] the states that it keeps must be fp32 or bf16 vectors as long as parameter: "
        "parameter [4] fp32, states[0] [4] fp32, states[1] [3] fp32");
  args = operands.args(state, true);
  args.compute = operands.m.tensor();
  CHECK(starts_with(failure_of([&] { update(host.context(), one(args)); }),
                    "[adamw] compute must be a bf16 or fp16 vector"));
  args = operands.args(state, true);
  args.state = nullptr;
  CHECK(failure_of([&] { update(host.context(), one(args)); }) == "[adamw] state must be given");
}

namespace {

/// m and v in bf16, each with the values of other operands.
struct Narrow {
  Values m, v;

  explicit Narrow(const Operands& from)
      : m(Shape{from.m.numel()}, DType::bf16), v(Shape{from.v.numel()}, DType::bf16) {
    for (std::int64_t i = 0; i < m.numel(); ++i) {
      m.set(i, static_cast<float>(from.m.at(i)));
      v.set(i, static_cast<float>(from.v.at(i)));
    }
  }
};

}  // namespace

TEST_CASE("adamw rounds moments in bf16 as the plain update does") {
  const auto count = GENERATE(1, 15, 4097, 10000);
  StepState state = adamw_step_state();
  state.seed = 5;
  state.step = 3;
  for (const bool first : {false, true}) {
    for (const bool second : {false, true}) {
      Operands fast(count);
      Operands plain(count);
      Narrow fast_narrow(fast);
      Narrow plain_narrow(plain);
      const auto run = [&](const Kernels& kernels, Operands& operands, Narrow& narrow) {
        Update args = operands.args(state, true);
        if (first) args.states[0] = narrow.m.tensor();
        if (second) args.states[1] = narrow.v.tensor();
        args.rounding = {.tensor = 77, .first = 1000, .skip = 2, .run = 7, .stride = 50};
        update(Host(kernels).context(), one(args));
      };
      run(tested_kernels(), fast, fast_narrow);
      run(plain_kernels, plain, plain_narrow);
      CHECK(difference(fast.parameter, plain.parameter) < 1e-6);
      // The kernels differ by fp32's rounding, which seldom leads to the other neighbour.
      std::int64_t others = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        if (first && fast_narrow.m.at(i) != plain_narrow.m.at(i)) ++others;
        if (second && fast_narrow.v.at(i) != plain_narrow.v.at(i)) ++others;
      }
      CHECK(others <= 1 + count / 1000);
      if (first) CHECK(difference(fast_narrow.m, plain_narrow.m) < 1.0 / 64);
      if (second) CHECK(difference(fast_narrow.v, plain_narrow.v) < 1.0 / 64);
    }
  }
}

TEST_CASE("adamw rounds a parameter in bf16 as the plain update does") {
  const auto count = GENERATE(1, 15, 4097, 10000);
  const bool narrow_moments = GENERATE(false, true);
  StepState state = adamw_step_state();
  state.seed = 5;
  state.step = 3;
  const auto updated = [&](const Kernels& kernels, Values& weight, Values& m) {
    Operands operands(count);
    Narrow narrow(operands);
    for (std::int64_t i = 0; i < count; ++i) {
      weight.set(i, static_cast<float>(operands.parameter.at(i)));
    }
    Update args = operands.args(state, false);
    args.parameter = weight.tensor();
    if (narrow_moments) args.states[0] = narrow.m.tensor();
    if (narrow_moments) args.states[1] = narrow.v.tensor();
    args.rounding = {.tensor = 77, .first = 1000, .skip = 2, .run = 7, .stride = 50};
    update(Host(kernels).context(), one(args));
    m = narrow_moments ? narrow.m : operands.m;
  };
  Values fast(Shape{count}, DType::bf16), plain(Shape{count}, DType::bf16);
  Values fast_m(Shape{count}, DType::f32), plain_m(Shape{count}, DType::f32);
  updated(tested_kernels(), fast, fast_m);
  updated(plain_kernels, plain, plain_m);
  std::int64_t others = 0;
  for (std::int64_t i = 0; i < count; ++i) others += fast.at(i) != plain.at(i) ? 1 : 0;
  CHECK(others <= 1 + count / 1000);
  CHECK(difference(fast, plain) < 1.0 / 64);
  CHECK(difference(fast_m, plain_m) < 1.0 / 64);
}

TEST_CASE("a parameter in bf16 moves in the mean by what nearest rounding would lose") {
  constexpr std::int64_t count = 4096;
  constexpr int steps = 64;
  // Adam's first steps of a constant gradient move by the learning rate: a 64th of half a step of
  // bf16 below 1.
  constexpr float rate = 0x1p-9F / 64;
  StepState state = adamw_step_state();
  state.seed = 11;
  state.learning_rate = rate;
  state.clip_coefficient = 1;
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Values parameter(Shape{count}, DType::bf16);
    Values gradient(Shape{count}, DType::f32);
    Values m(Shape{count}, DType::f32);
    Values v(Shape{count}, DType::f32);
    for (std::int64_t i = 0; i < count; ++i) {
      parameter.set(i, 0.75F);
      gradient.set(i, 1);
    }
    for (state.step = 0; state.step < steps; ++state.step) {
      state.bias_correction1 = 1 - std::pow(0.9F, static_cast<float>(state.step + 1));
      state.bias_correction2 = 1 - std::pow(0.999F, static_cast<float>(state.step + 1));
      update(Host(*kernels).context(), one<Update>({.parameter = parameter.tensor(),
                                                    .gradient = gradient.tensor(),
                                                    .states = {m.tensor(), v.tensor()},
                                                    .constants = {.beta1 = 0.9F, .beta2 = 0.999F},
                                                    .rounding = {.tensor = 3},
                                                    .state = &state}));
    }
    double mean = 0;
    for (std::int64_t i = 0; i < count; ++i) mean += parameter.at(i) / count;
    // The deviation of one element is below half a step of bf16, 2^-9.
    CHECK(mean == Approx(0.75 - steps * rate).margin(4 * 0x1p-9 / 64));
    CHECK(mean < 0.75 - steps * rate / 2);
  }
}

TEST_CASE("rounding at random is right on average, and moves what is too small to see") {
  constexpr std::int64_t count = 64;
  constexpr int steps = 4000;
  StepState state = adamw_step_state();
  state.seed = 11;
  state.clip_coefficient = 1;
  Values parameter(Shape{count}, DType::f32);
  Values gradient(Shape{count}, DType::f32);
  Values m(Shape{count}, DType::bf16);
  Values v(Shape{count}, DType::bf16);
  for (std::int64_t i = 0; i < count; ++i) gradient.set(i, 1.0F + 0.01F * static_cast<float>(i));
  const Host host(tested_kernels());
  for (state.step = 0; state.step < steps; ++state.step) {
    // A thousandth of the way to the squared gradient in each step: bf16 has steps of a 256th.
    update(host.context(), one<Update>({.parameter = parameter.tensor(),
                                        .gradient = gradient.tensor(),
                                        .states = {m.tensor(), v.tensor()},
                                        .constants = {.beta1 = 0.99F, .beta2 = 0.999F},
                                        .rounding = {.tensor = 3},
                                        .state = &state}));
  }
  double error = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double g = gradient.at(i);
    const double expected = g * g * (1 - std::pow(0.999, steps));
    CHECK(v.at(i) == Approx(expected).epsilon(0.25));
    error += v.at(i) / expected - 1;
  }
  CHECK(std::abs(error / count) < 0.02);
}

TEST_CASE("each number is rounded to its neighbours in proportion") {
  for (const float value : {1.0F + 0x1p-9F, -3.0F - 0x1p-8F, 1e-3F, 0.0F, -0.0F, 65280.0F}) {
    double sum = 0;
    for (std::uint32_t random = 0; random < 0x10000; ++random) {
      sum += double{to_float(round_at_random<bf16>(value, random))};
    }
    CHECK(sum / 0x10000 == double{value});  // exactly
  }
  for (const float value : {INFINITY, -INFINITY}) {
    CHECK(to_float(round_at_random<bf16>(value, 0xffff)) == value);
  }
  CHECK(std::isnan(to_float(round_at_random<bf16>(NAN, 0xffff))));
}

TEST_CASE("a part of a tensor is rounded as the whole is") {
  // Columns 6 to 9 of a tensor [5, 10], without the first three elements of that part.
  const RandomRounding whole{.tensor = 9};
  const RandomRounding part{.tensor = 9, .first = 6, .skip = 3, .run = 4, .stride = 10};
  for (std::int64_t i = 0; i < 17; ++i) {
    const std::int64_t row = (i + 3) / 4;
    const std::int64_t column = 6 + (i + 3) % 4;
    CHECK(part.whole(i) == whole.whole(row * 10 + column));
  }
  CHECK(part.stream(4) == whole.stream(4));
  CHECK(part.stream(4) != part.stream(5));
  CHECK(part.weight_stream(4) == whole.weight_stream(4));
  CHECK(part.weight_stream(4) != part.stream(4));
}

}  // namespace adamw_test
