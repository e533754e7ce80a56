#include "ops/optimizer.h"

#include "catch.h"
#include "op_values.h"

namespace sgd_test {

using namespace op_test;

namespace {

StepState step_state() {
  StepState state;
  state.learning_rate = 0.25F;
  state.weight_decay = 0.5F;
  state.clip_coefficient = 2;
  return state;
}

}  // namespace

TEST_CASE("sgd makes the plain update") {
  const auto count = GENERATE(1, 15, 4097, 10000);
  const bool with_momentum = GENERATE(false, true);
  const bool with_compute = GENERATE(false, true);
  const bool coupled = GENERATE(false, true);
  const StepState state = step_state();
  const DType type = GENERATE(DType::f32, DType::bf16);
  Values gradient = Values::random(Shape{count}, type, 2);
  const auto run = [&](const Kernels& kernels, Values& parameter, Values& momentum,
                       Values& compute) {
    update(Host(kernels).context(),
           one<Update>({.rule = UpdateRule::sgd,
                        .parameter = parameter.tensor(),
                        .gradient = gradient.tensor(),
                        .states = {with_momentum ? momentum.tensor() : Tensor{}},
                        .compute = with_compute ? compute.tensor() : Tensor{},
                        .constants = {.momentum = with_momentum ? 0.9F : 0.0F, .coupled = coupled},
                        .decay = true,
                        .state = &state}));
  };
  Values parameter = Values::random(Shape{count}, DType::f32, 1);
  Values momentum = Values::random(Shape{count}, DType::f32, 3);
  Values compute(Shape{count}, DType::bf16);
  Values plain_parameter = parameter;
  Values plain_momentum = momentum;
  Values plain_compute = compute;
  run(tested_kernels(), parameter, momentum, compute);
  run(plain_kernels, plain_parameter, plain_momentum, plain_compute);
  CHECK(difference(parameter, plain_parameter) < 1e-6);
  CHECK(difference(momentum, plain_momentum) < 1e-6);
  CHECK(difference(compute, plain_compute) < 1e-2);
  CHECK((compute.at(0) != 0) == with_compute);
}

TEST_CASE("a parameter's factors multiply the rate and the decay of the step") {
  StepState state = step_state();
  state.clip_coefficient = 1;
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    for (const UpdateRule rule : {UpdateRule::adamw, UpdateRule::sgd, UpdateRule::lion}) {
      Values parameter = Values::of<float>({2});
      Values gradient = Values::of<float>({1});
      Values first = Values::of<float>({0});
      Values second = Values::of<float>({0});
      state.bias_correction1 = 0.1F;
      state.bias_correction2 = 0.001F;
      update(Host(*kernels).context(),
             one<Update>({.rule = rule,
                          .parameter = parameter.tensor(),
                          .gradient = gradient.tensor(),
                          .states = {first.tensor(),
                                     rule == UpdateRule::adamw ? second.tensor() : Tensor{}},
                          .constants = {.momentum = 0.9F, .rate_factor = 0.5F, .decay_factor = 4},
                          .decay = true,
                          .state = &state}));
      const double moved = 1 + 4.0 * double{state.weight_decay} * 2;
      CHECK(parameter.at(0) == Approx(2 - 0.5 * double{state.learning_rate} * moved).epsilon(1e-5));
    }
  }
}

TEST_CASE("coupled decay goes through the momentum, decoupled decay past it") {
  StepState state = step_state();
  state.clip_coefficient = 1;
  const auto after = [&](bool coupled) {
    Values parameter = Values::of<float>({2});
    Values gradient = Values::of<float>({1});
    Values momentum = Values::of<float>({0});
    for (int step = 0; step < 2; ++step) {
      update(Host(tested_kernels()).context(),
             one<Update>({.rule = UpdateRule::sgd,
                          .parameter = parameter.tensor(),
                          .gradient = gradient.tensor(),
                          .states = {momentum.tensor()},
                          .constants = {.momentum = 0.5F, .coupled = coupled},
                          .decay = true,
                          .state = &state}));
    }
    return parameter.at(0);
  };
  // b = 1 + 0.5 * 2 = 2, p = 2 - 0.25 * 2 = 1.5; b = 0.5 * 2 + 1 + 0.5 * 1.5 = 2.75, p = 0.8125
  CHECK(after(true) == 0.8125);
  // b = 1, p = 2 - 0.25 * (1 + 1) = 1.5; b = 1.5, p = 1.5 - 0.25 * (1.5 + 0.75) = 0.9375
  CHECK(after(false) == 0.9375);
}

TEST_CASE("sgd rounds a parameter in bf16 as the plain update does") {
  constexpr std::int64_t count = 4097;
  const bool with_momentum = GENERATE(false, true);
  StepState state = step_state();
  state.learning_rate = 0.001F;
  state.seed = 5;
  const Values gradient = Values::random(Shape{count}, DType::f32, 2);
  const auto run = [&](const Kernels& kernels, Values& parameter) {
    Values g = gradient;
    Values momentum = Values::random(Shape{count}, DType::f32, 3);
    update(Host(kernels).context(),
           one<Update>({.rule = UpdateRule::sgd,
                        .parameter = parameter.tensor(),
                        .gradient = g.tensor(),
                        .states = {with_momentum ? momentum.tensor() : Tensor{}},
                        .constants = {.momentum = with_momentum ? 0.9F : 0.0F},
                        .decay = true,
                        .rounding = {.tensor = 7, .first = 10, .run = 7, .stride = 50},
                        .state = &state}));
  };
  const Values before = Values::random(Shape{count}, DType::bf16, 1);
  Values fast = before;
  Values plain = before;
  run(tested_kernels(), fast);
  run(plain_kernels, plain);
  std::int64_t others = 0;  // the other neighbour, where fp32 was rounded differently
  std::int64_t moved = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    others += fast.at(i) != plain.at(i) ? 1 : 0;
    moved += fast.at(i) != before.at(i) ? 1 : 0;
  }
  CHECK(others <= 1 + count / 1000);
  CHECK(moved > count / 10);
}

TEST_CASE("sgd follows its formula") {
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    const StepState state = step_state();
    Values parameter = Values::of<float>({8});
    Values gradient = Values::of<float>({1});
    Values momentum = Values::of<float>({4});
    update(Host(*kernels).context(), one<Update>({.rule = UpdateRule::sgd,
                                                  .parameter = parameter.tensor(),
                                                  .gradient = gradient.tensor(),
                                                  .states = {momentum.tensor()},
                                                  .constants = {.momentum = 0.5F},
                                                  .decay = true,
                                                  .state = &state}));
    CHECK(momentum.at(0) == 4);   // 0.5 * 4 + 2 * 1
    CHECK(parameter.at(0) == 6);  // 8 - 0.25 (4 + 0.5 * 8)
  }
}

TEST_CASE("sgd names what does not fit") {
  const StepState state = step_state();
  const Host host(tested_kernels());
  Values x(Shape{4}, DType::f32);
  Values y(Shape{3}, DType::f32);
  CHECK(failure_of([&] {
          update(host.context(), one<Update>({.rule = UpdateRule::sgd,
                                              .parameter = x.tensor(),
                                              .gradient = y.tensor(),
                                              .state = &state}));
        }) ==
        "[sgd] parameter and gradient must be fp32 or bf16 vectors of one length: "
        "parameter [4] fp32, gradient [3] fp32");
  CHECK(starts_with(failure_of([&] {
                      update(host.context(), one<Update>({.rule = UpdateRule::sgd,
                                                          .parameter = x.tensor(),
                                                          .gradient = x.tensor(),
                                                          .constants = {.momentum = 0.5F},
                                                          .state = &state}));
                    }),
                    "[sgd] the states that it keeps must be fp32 vectors as long as parameter"));
  CHECK(failure_of([&] {
          update(host.context(),
                 one<Update>(
                     {.rule = UpdateRule::sgd, .parameter = x.tensor(), .gradient = x.tensor()}));
        }) == "[sgd] state must be given");
}

}  // namespace sgd_test
