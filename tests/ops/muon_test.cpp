// The two updates of Muon against their formulas, and the operations that its products need around
// them.
#include "ops/elementwise.h"
#include "ops/optimizer.h"
#include "ops/rows.h"

#include <cmath>

#include "base/integers.h"
#include "catch.h"
#include "op_values.h"

namespace muon_test {

using namespace op_test;

TEST_CASE("muon's direction is the mean of clipped gradients, or a step ahead of it") {
  StepState state = binary_step_state();
  state.clip_coefficient = 0.5F;
  const bool nesterov = GENERATE(false, true);
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Values gradient = Values::of<float>({2, -4, 0});
    Values momentum = Values::of<float>({1, 0, 3});
    Values direction = Values::of<float>({7, 7, 7});
    Update args{.rule = UpdateRule::muon_direction,
                .parameter = direction.tensor(),
                .gradient = gradient.tensor(),
                .states = {momentum.tensor()},
                .constants = {.momentum = 0.75F, .nesterov = nesterov},
                .state = &state};
    update(Host(*kernels).context(), one<Update>(args));
    for (std::int64_t i = 0; i < 3; ++i) {
      const double g = 0.5 * gradient.at(i);
      const double before = i == 0 ? 1 : i == 1 ? 0 : 3;
      const double b = 0.75 * before + 0.25 * g;
      CHECK(momentum.at(i) == Approx(b));
      CHECK(direction.at(i) == Approx(nesterov ? 0.75 * b + 0.25 * g : b));
    }
    state.found_inf = 1;
    const double kept = momentum.at(0);
    update(Host(*kernels).context(), one<Update>(args));
    CHECK(momentum.at(0) == kept);
    state.found_inf = 0;
  }
}

TEST_CASE("muon's step is not clipped, and its decay comes first") {
  StepState state = binary_step_state();
  state.clip_coefficient = 0.001F;
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
      Values parameter = Values::of<float>({2, -3});
      Values x(Shape{2}, type);
      x.set(0, 0.5F);
      x.set(1, -0.25F);
      update(Host(*kernels).context(),
             one<Update>({.rule = UpdateRule::muon_step,
                          .parameter = parameter.tensor(),
                          .gradient = x.tensor(),
                          .constants = {.scale = 3, .rate_factor = 2, .decay_factor = 0.5F},
                          .decay = true,
                          .state = &state}));
      const double rate = 2 * double{state.learning_rate};
      const double left = 1 - rate * 0.5 * double{state.weight_decay};
      CHECK(parameter.at(0) == Approx(2 * left - rate * 3 * 0.5).epsilon(1e-6));
      CHECK(parameter.at(1) == Approx(-3 * left + rate * 3 * 0.25).epsilon(1e-6));
    }
  }
}

TEST_CASE("scaled_sum gives the plain sums, in place and between types") {
  const std::int64_t count = GENERATE(1, 7, 4099, 20000);
  const DType x_type = GENERATE(DType::f32, DType::bf16);
  const DType z_type = GENERATE(DType::f32, DType::bf16);
  Values x = Values::random(Shape{count}, x_type, 1);
  Values y = Values::random(Shape{count}, DType::f32, 2);
  Values plain(Shape{count}, z_type);
  Values fast(Shape{count}, z_type);
  const auto sum = [&](const Kernels& kernels, Values& z) {
    scaled_sum(Host(kernels).context(),
               {.x = x.tensor(), .y = y.tensor(), .z = z.tensor(), .alpha = 2.5F, .beta = -0.5F});
  };
  sum(plain_kernels, plain);
  sum(tested_kernels(), fast);
  CHECK(plain.at(0) == Approx(2.5 * x.at(0) - 0.5 * y.at(0)).epsilon(1e-2));
  CHECK(difference(fast, plain) < (z_type == DType::f32 ? 1e-6 : 1e-2));
  if (x_type != z_type) return;
  sum(tested_kernels(), x);
  CHECK(x == fast);
}

TEST_CASE("scaled_sum divides by a norm, and nothing stays nothing") {
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Values x = Values::of<float>({3, -4});
    const auto normalised = [&](double squares, float least) {
      Values z = Values::of<float>({9, 9});
      scaled_sum(Host(*kernels).context(),
                 {.x = x.tensor(), .z = z.tensor(), .squares = &squares, .least = least});
      return z;
    };
    CHECK(normalised(25, 1e-7F).at(0) == Approx(0.6));
    CHECK(normalised(25, 10).at(1) == Approx(-0.4));
    CHECK(normalised(0, 0).at(1) == 0);
  }
}

TEST_CASE("a parameter is scaled by a factor that is read when it is") {
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Values parameter = Values::of<float>({2, -3, 1e-20F});
    Values rounded(Shape{3}, DType::bf16);
    const float factor = 0.7F;
    StepState state;
    const auto scale = [&] {
      update(Host(*kernels).context(), one<Update>({.rule = UpdateRule::scale,
                                                    .parameter = parameter.tensor(),
                                                    .gradient = parameter.tensor(),
                                                    .compute = rounded.tensor(),
                                                    .factor = &factor,
                                                    .state = &state}));
    };
    scale();
    CHECK(parameter.at(0) == double{2 * factor});
    CHECK(parameter.at(1) == double{-3 * factor});
    CHECK(rounded.at(1) == Approx(-2.1).epsilon(0.01));
    state.found_inf = true;
    scale();
    CHECK(parameter.at(0) == double{2 * factor});
  }
}

TEST_CASE("the largest of many numbers is kept over calls") {
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Values key = Values::of<std::int32_t>({0});
    const auto take = [&](Values x) {
      largest(Host(*kernels).context(), {.x = x.tensor(), .key = key.tensor()});
      return number_of_key(static_cast<std::uint32_t>(*key.tensor().as<std::int32_t>()));
    };
    CHECK(take(Values::of<float>({-7.5F})) == -7.5F);
    CHECK(take(Values::of<float>({-8, -9})) == -7.5F);
    CHECK(take(Values::of<float>({-0.0F})) == 0);
    std::vector<float> many(9001, 1.0F);
    many[8999] = 3.25F;
    CHECK(take(Values::of(many)) == 3.25F);
    CHECK(std::isnan(take(Values::of<float>({NAN, 1}))));
  }
}

TEST_CASE("the largest of many numbers leaves out queries that are not real") {
  // Two sequences and two heads; queries 0 and 1 of a sequence are its rows 2 and 3.
  const std::vector<TokenRun> runs{{4, 2}, {0, 0}};
  const AttentionShape shape{.sequences = 2,
                             .query_length = 4,
                             .key_length = 8,
                             .heads = 2,
                             .kv_heads = 2,
                             .head_dim = 2,
                             .query_runs = {.length = 2, .stride = 4, .runs = runs}};
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    for (std::int64_t row = 0; row < 8; ++row) {
      std::vector<std::uint8_t> marks(8, 0);
      marks[static_cast<std::size_t>(row)] = 1;
      Values x({2, 2, 4}, DType::f32);
      for (std::int64_t i = 0; i < 16; ++i) x.set(i, static_cast<float>(i));
      Values key = Values::of<std::int32_t>({0});
      Values real = Values::of(marks);
      largest(Host(*kernels).context(),
              {.x = x.tensor(), .key = key.tensor(), .real = real.tensor(), .shape = shape});
      const std::int64_t query = (row % 4 + 2) % 4;
      CHECK(number_of_key(static_cast<std::uint32_t>(*key.tensor().as<std::int32_t>())) ==
            static_cast<float>(row / 4 * 8 + 4 + query));
    }
  }
}

TEST_CASE("copy_rows moves rows and leaves what lies between them") {
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      Values x = Values::random(Shape{4, 5}, type, 1);
      Values y(Shape{30}, type);
      for (std::int64_t i = 0; i < 30; ++i) y.set(i, -9);
      const Tensor from = x.tensor().view({20});
      copy_rows(Host(*kernels).context(), {.x = from.slice(1, 20),
                                           .y = y.tensor().slice(2, 30),
                                           .rows = 4,
                                           .length = 3,
                                           .x_step = 5,
                                           .y_step = 7});
      for (std::int64_t i = 0; i < 30; ++i) {
        const std::int64_t row = (i - 2) / 7;
        const std::int64_t place = (i - 2) % 7;
        const bool inside = i >= 2 && row < 4 && place < 3;
        CHECK(y.at(i) == (inside ? x.at(row * 5 + 1 + place) : -9));
      }
    }
  }
}

TEST_CASE("the operations around muon's products name what does not fit") {
  Values a(Shape{4}, DType::f32);
  Values b(Shape{5}, DType::f32);
  const Host host(tested_kernels());
  CHECK(starts_with(
      failure_of([&] { scaled_sum(host.context(), {.x = a.tensor(), .z = b.tensor()}); }),
      "[scaled_sum] x, z and y, where it is given, must have the same shape"));
  CHECK(starts_with(
      failure_of([&] {
        copy_rows(
            host.context(),
            {.x = a.tensor(), .y = b.tensor(), .rows = 2, .length = 3, .x_step = 3, .y_step = 3});
      }),
      "[copy_rows] x and y must be different memory of one type that holds"));
}

}  // namespace muon_test
