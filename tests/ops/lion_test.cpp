#include <fstream>

#include "catch.h"
#include "op_values.h"
#include "ops/optimizer.h"

namespace lion_test {

using namespace op_test;

namespace {

constexpr std::int64_t count = 24;

/// The gradient of tests/reference/make_optimizers.py.
float gradient_of(std::int64_t step, std::int64_t i) {
  return i == 7 ? 0.0F : static_cast<float>((i + 3) * (step + 5) * 7919 % 257 - 128) / 64;
}

struct Operands {
  Values parameter, gradient, momentum;

  explicit Operands(DType state = DType::f32)
      : parameter(Shape{count}, DType::f32),
        gradient(Shape{count}, DType::f32),
        momentum(Shape{count}, state) {
    for (std::int64_t i = 0; i < count; ++i) {
      parameter.set(i, static_cast<float>(37 * i % 101 - 50) / 16);
    }
  }
  /// The update of elements [begin, end), in which every third one does not decay.
  Update args(std::int64_t begin, std::int64_t end, const StepState& state) {
    return {.rule = UpdateRule::lion,
            .parameter = parameter.tensor().slice(begin, end),
            .gradient = gradient.tensor().slice(begin, end),
            .states = {momentum.tensor().slice(begin, end)},
            .constants = {.beta1 = 0.9F, .beta2 = 0.99F},
            .decay = begin % 3 != 0,
            .rounding = {.tensor = 5, .first = begin},
            .state = &state};
  }
  void step(const Kernels& kernels, StepState& state) {
    std::vector<Update> calls;
    for (std::int64_t i = 0; i < count; ++i) {
      gradient.set(i, gradient_of(state.step, i));
      calls.push_back(args(i, i + 1, state));
    }
    update(Host(kernels).context(), Calls<Update>(calls));
    ++state.step;
  }
};

}  // namespace

TEST_CASE("lion follows its formula in fp64 over 20 steps") {
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    std::ifstream file(TRAINCTL_SOURCE_DIR "/tests/reference/optimizers/lion.txt");
    StepState state = binary_step_state();
    Operands operands;
    for (std::int64_t number = 0; file >> number;) {
      operands.step(*kernels, state);
      CHECK(number == state.step);
      for (std::int64_t i = 0; i < count; ++i) {
        CAPTURE(number, i);
        double parameter = 0;
        double momentum = 0;
        REQUIRE(file >> parameter >> momentum);
        CHECK(operands.parameter.at(i) == Approx(parameter).epsilon(1e-6).margin(1e-6));
        CHECK(operands.momentum.at(i) == Approx(momentum).epsilon(1e-6).margin(1e-6));
      }
    }
    CHECK(state.step == 20);
    CHECK(operands.momentum.at(7) == 0);  // without a gradient the sign is 0: it only decays
  }
}

TEST_CASE("lion makes the plain update, with momentum in bf16 too") {
  const DType type = GENERATE(DType::f32, DType::bf16);
  const DType weight = GENERATE(DType::f32, DType::bf16);
  constexpr std::int64_t length = 10003;
  StepState state = binary_step_state();
  state.seed = 3;
  state.clip_coefficient = 0.5F;
  Values gradient = Values::random(Shape{length}, DType::f32, 2);
  const auto updated = [&](const Kernels& kernels, Values& momentum) {
    Values parameter = Values::random(Shape{length}, weight, 1);
    momentum = Values::random(Shape{length}, type, 3);
    update(Host(kernels).context(), one<Update>({.rule = UpdateRule::lion,
                                                 .parameter = parameter.tensor(),
                                                 .gradient = gradient.tensor(),
                                                 .states = {momentum.tensor()},
                                                 .decay = true,
                                                 .rounding = {.tensor = 77, .first = 1000},
                                                 .state = &state}));
    return parameter;
  };
  Values fast_momentum(Shape{length}, type);
  Values plain_momentum(Shape{length}, type);
  const Values fast = updated(tested_kernels(), fast_momentum);
  const Values plain = updated(plain_kernels, plain_momentum);
  std::int64_t others = 0;  // another neighbour, or another sign of nearly nothing
  for (std::int64_t i = 0; i < length; ++i) {
    const double apart = std::abs(fast.at(i) - plain.at(i));
    others += apart > 1e-6 || std::abs(fast_momentum.at(i) - plain_momentum.at(i)) > 1e-6 ? 1 : 0;
  }
  CHECK(others <= 1 + 2 * length / 1000);
}

TEST_CASE("lion names what does not fit") {
  const StepState state = binary_step_state();
  Operands operands;
  Update args = operands.args(0, 4, state);
  args.states[0] = {};
  CHECK(starts_with(failure_of([&] { update(Host(tested_kernels()).context(), one(args)); }),
                    "[lion] the states that it keeps must be fp32 or bf16 vectors"));
  args = operands.args(0, 4, state);
  args.states[1] = args.states[0];
  CHECK(starts_with(failure_of([&] { update(Host(tested_kernels()).context(), one(args)); }),
                    "[lion] the states that it keeps must be fp32 or bf16 vectors"));
}

}  // namespace lion_test
