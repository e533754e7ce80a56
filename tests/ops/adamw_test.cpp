#include "ops/adamw.h"

#include "catch.h"
#include "op_values.h"

using namespace op_test;

namespace {

struct Update {
  Values parameter, gradient, m, v, compute;

  explicit Update(std::int64_t count, DType copy = DType::bf16)
      : parameter(Values::random(Shape{count}, DType::f32, 1)),
        gradient(Values::random(Shape{count}, DType::f32, 2)),
        m(Values::random(Shape{count}, DType::f32, 3, 0.1F)),
        v(Shape{count}, DType::f32),
        compute(Shape{count}, copy) {
    for (std::int64_t i = 0; i < count; ++i) {
      v.set(i, static_cast<float>(m.at(i) * m.at(i)) * 1.5F);
    }
  }

  AdamW args(const StepState& state, bool with_compute) {
    return {.parameter = parameter.tensor(),
            .gradient = gradient.tensor(),
            .m = m.tensor(),
            .v = v.tensor(),
            .compute = with_compute ? compute.tensor() : Tensor{},
            .beta1 = 0.9F,
            .beta2 = 0.99F,
            .epsilon = 1e-8F,
            .decay = true,
            .state = &state};
  }
};

StepState step_state() {
  StepState state;
  state.learning_rate = 0.01F;
  state.weight_decay = 0.1F;
  state.bias_correction1 = 0.271F;
  state.bias_correction2 = 0.0297F;
  state.clip_coefficient = 0.5F;
  return state;
}

}  // namespace

TEST_CASE("adamw makes the plain update") {
  const auto count = GENERATE(1, 15, 4097, 10000);
  const bool with_compute = GENERATE(false, true);
  const DType copy = GENERATE(DType::bf16, DType::f16);
  const StepState state = step_state();
  Update fast(count, copy);
  Update plain(count, copy);
  adamw(Host(tested_kernels()).context(), fast.args(state, with_compute));
  adamw(Host(plain_kernels).context(), plain.args(state, with_compute));
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
    adamw(Host(*kernels).context(), {.parameter = parameter.tensor(),
                                     .gradient = gradient.tensor(),
                                     .m = m.tensor(),
                                     .v = v.tensor(),
                                     .state = &state});
    CHECK(parameter.at(0) == Approx(0.875).epsilon(1e-5));  // no decay unless asked
    CHECK(parameter.at(1) == Approx(1.125).epsilon(1e-4));
    CHECK(m.at(0) == Approx(0.3).epsilon(1e-5));
    CHECK(v.at(0) == Approx(0.009).epsilon(1e-4));
  }
}

TEST_CASE("adamw names what does not fit") {
  const StepState state = step_state();
  const Host host(tested_kernels());
  Update update(4);
  Values shorter(Shape{3}, DType::f32);
  AdamW args = update.args(state, true);
  args.v = shorter.tensor();
  CHECK(failure_of([&] { adamw(host.context(), args); }) ==
        "[adamw] parameter, gradient, m and v must be fp32 vectors of one length: parameter [4] "
        "fp32, gradient [4] fp32, m [4] fp32, v [3] fp32");
  args = update.args(state, true);
  args.compute = update.m.tensor();
  CHECK(starts_with(failure_of([&] { adamw(host.context(), args); }),
                    "[adamw] compute must be a bf16 or fp16 vector"));
  args = update.args(state, true);
  args.state = nullptr;
  CHECK(failure_of([&] { adamw(host.context(), args); }) == "[adamw] state must be given");
}
