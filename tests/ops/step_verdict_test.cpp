#include "ops/optimizer.h"

#include "catch.h"
#include "op_values.h"

namespace step_verdict_test {

using namespace op_test;

namespace {

/// A scaler as it begins, and the steps that it is told of.
struct Scaler {
  StepVerdict args{
      .square_sums = {}, .growth = 2, .backoff = 0.5, .least = 2, .window = 3, .hysteresis = 2};
  StepState state{.loss_scale = 16, .hysteresis = 2};

  /// The state after one step with these sums of all ranks, in pairs.
  StepState step(std::vector<double> sums) {
    const auto count = static_cast<std::int64_t>(sums.size());
    args.square_sums = host_tensor(sums.data(), count).view({count / 2, 2});
    args.state = &state;
    step_verdict(Host(tested_kernels()).context(), args);
    return state;
  }
  double scale_after(double sum) { return step({sum, 0}).loss_scale; }
};

constexpr double good = 1;
const double inf = INFINITY;

}  // namespace

TEST_CASE("step_verdict takes the norm of unscaled gradients, and clips and unscales at once") {
  Scaler scaler;
  scaler.args.limit = 0.5;
  // Scaled by 16, three ranks: only first columns count.
  const StepState state = scaler.step({256 * 4, 7, 256 * 5, 1e30, 0, 256});
  CHECK(state.grad_norm == 3);
  CHECK(state.clip_coefficient == Approx(0.5 / (3 + 1e-6) / 16));
  CHECK_FALSE(state.found_inf);
  CHECK(state.updates == 1);
  scaler.args.limit = 0;
  CHECK(scaler.step({256 * 9, 0}).clip_coefficient == 1.0F / 16);
  scaler.args.limit = 10;
  CHECK(scaler.step({256 * 9, 0}).clip_coefficient == 1.0F / 16);
}

TEST_CASE("step_verdict finds what is not finite on any rank, counted or not") {
  for (const double bad : {inf, std::numeric_limits<double>::quiet_NaN()}) {
    for (std::size_t at = 0; at < 6; ++at) {
      std::vector<double> sums(6, 1.0);
      sums[at] = bad;
      Scaler scaler;
      const StepState state = scaler.step(sums);
      CHECK(state.found_inf);
      CHECK(state.updates == 0);
      CHECK_FALSE(scaler.step({1, 1}).found_inf);
    }
  }
}

TEST_CASE("the loss scale falls after hysteresis and not below the least") {
  Scaler scaler;
  CHECK(scaler.scale_after(inf) == 16);  // one of two
  CHECK(scaler.scale_after(inf) == 8);
  CHECK(scaler.scale_after(inf) == 4);  // used up until the scale grows
  CHECK(scaler.scale_after(good) == 4);
  CHECK(scaler.scale_after(inf) == 2);
  CHECK(scaler.scale_after(inf) == 2);
  CHECK(scaler.state.updates == 1);
}

TEST_CASE("the loss scale grows after a window of updates in a row") {
  Scaler scaler;
  CHECK(scaler.scale_after(inf) == 16);
  CHECK(scaler.scale_after(good) == 16);
  CHECK(scaler.scale_after(good) == 16);
  CHECK(scaler.scale_after(inf) == 8);  // the window restarts
  CHECK(scaler.scale_after(good) == 8);
  CHECK(scaler.scale_after(good) == 8);
  CHECK(scaler.scale_after(good) == 16);
  CHECK(scaler.scale_after(inf) == 16);  // hysteresis is back
  CHECK(scaler.scale_after(inf) == 8);
  scaler.state.loss_scale = 0x1p64;
  for (int i = 0; i < 6; ++i) CHECK(scaler.scale_after(good) == 0x1p64);
}

TEST_CASE("a constant loss scale stays") {
  Scaler scaler;
  scaler.args.growth = scaler.args.backoff = 1;
  scaler.args.least = 16;
  scaler.args.window = scaler.args.hysteresis = scaler.state.hysteresis = 1;
  for (const double sum : {inf, good, good, inf, inf, good}) CHECK(scaler.scale_after(sum) == 16);
  CHECK(scaler.state.updates == 3);
}

TEST_CASE("optimizers write nothing in a step that found an infinity") {
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    StepState state;
    state.learning_rate = 1;
    state.found_inf = true;
    const Host host(*kernels);
    Values gradient = Values::of<float>({1, INFINITY});
    Values parameter = Values::of<float>({2, 3});
    Values m = Values::of<float>({4, 5});
    Values v = Values::of<float>({6, 7});
    Values compute({2}, DType::f16);
    update(host.context(), one<Update>({.parameter = parameter.tensor(),
                                        .gradient = gradient.tensor(),
                                        .states = {m.tensor(), v.tensor()},
                                        .compute = compute.tensor(),
                                        .state = &state}));
    update(host.context(), one<Update>({.rule = UpdateRule::sgd,
                                        .parameter = parameter.tensor(),
                                        .gradient = gradient.tensor(),
                                        .states = {m.tensor()},
                                        .compute = compute.tensor(),
                                        .constants = {.momentum = 0.5F},
                                        .state = &state}));
    CHECK(parameter == Values::of<float>({2, 3}));
    CHECK(m == Values::of<float>({4, 5}));
    CHECK(v == Values::of<float>({6, 7}));
    CHECK(compute == Values({2}, DType::f16));
    state.found_inf = false;
    update(host.context(), one<Update>({.rule = UpdateRule::sgd,
                                        .parameter = parameter.tensor(),
                                        .gradient = gradient.tensor(),
                                        .state = &state}));
    CHECK(parameter.at(0) == 1);
  }
}

TEST_CASE("step_verdict names what does not fit") {
  double sums[2] = {1, 1};
  StepState state;
  const Host host(tested_kernels());
  CHECK(failure_of([&] {
          step_verdict(host.context(), {.square_sums = host_tensor(sums, 2), .state = &state});
        }) == "[step_verdict] square_sums must be f64 [ranks, 2]: square_sums [2] fp64");
  CHECK(failure_of([&] {
          step_verdict(host.context(), {.square_sums = host_tensor(sums, 2).view({1, 2})});
        }) == "[step_verdict] state must be given");
}

}  // namespace step_verdict_test
