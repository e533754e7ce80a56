#include "ops/rows.h"

#include "catch.h"
#include "op_values.h"

namespace rows_test {

using namespace op_test;

namespace {

/// Three tokens with two choices each, one of them without a row.
Values slots() {
  Values slot({3, 2}, DType::i32);
  const std::int32_t rows[] = {4, 0, 2, -1, 1, 3};
  std::copy(std::begin(rows), std::end(rows), slot.tensor().as<std::int32_t>());
  return slot;
}

struct Scaled {
  Values y, dx, d_weight;
};

Scaled scale(const Kernels& kernels, const Shape& shape, DType dtype, bool sigmoid) {
  const Host host(kernels);
  Values x = Values::random(shape, dtype, 1);
  Values weight = Values::random({shape[0]}, DType::f32, 2);
  Values dy = Values::random(shape, dtype, 3);
  Scaled made{Values(shape, dtype), Values(shape, dtype), Values({shape[0]}, DType::f32)};
  scale_rows(
      host.context(),
      {.x = x.tensor(), .weight = weight.tensor(), .y = made.y.tensor(), .sigmoid = sigmoid});
  scale_rows_backward(host.context(), {.x = x.tensor(),
                                       .weight = weight.tensor(),
                                       .dy = dy.tensor(),
                                       .dx = made.dx.tensor(),
                                       .d_weight = made.d_weight.tensor(),
                                       .sigmoid = sigmoid});
  return made;
}

struct Biased {
  Values y, d_bias, d_weight;
};

Biased bias(const Kernels& kernels, const Shape& shape, DType dtype) {
  const Host host(kernels);
  Values bias = Values::random({shape[1]}, DType::f32, 1);
  Values weight = Values::random({shape[0]}, DType::f32, 2);
  Values dy = Values::random(shape, dtype, 3);
  Biased made{Values::random(shape, dtype, 4), Values::random({shape[1]}, DType::f32, 5),
              Values::random({shape[0]}, DType::f32, 6)};
  bias_rows(host.context(),
            {.y = made.y.tensor(), .weight = weight.tensor(), .bias = bias.tensor()});
  bias_rows_backward(host.context(), {.dy = dy.tensor(),
                                      .weight = weight.tensor(),
                                      .bias = bias.tensor(),
                                      .d_bias = made.d_bias.tensor(),
                                      .d_weight = made.d_weight.tensor()});
  return made;
}

}  // namespace

TEST_CASE("rows are spread and collected") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    for (const DType dtype : float_types) {
      for (const std::int64_t features : {1, 7, 300, 513}) {
        const Host host(*kernels);
        Values slot = slots();
        Values x = Values::random({3, features}, dtype, 4);
        Values rows({5, features}, dtype);
        spread_rows(host.context(), {x.tensor(), slot.tensor(), rows.tensor()});
        const int token_of[] = {0, 2, 1, 2, 0};
        for (std::int64_t i = 0; i < rows.numel(); ++i) {
          const std::int64_t token = token_of[i / features];
          REQUIRE(rows.at(i) == x.at(token * features + i % features));
        }
        Values y({3, features}, dtype);
        collect_rows(host.context(), {rows.tensor(), slot.tensor(), y.tensor()});
        for (std::int64_t i = 0; i < y.numel(); ++i) {
          const double times = i / features == 1 ? 1 : 2;
          REQUIRE(y.at(i) == times * x.at(i));
        }
      }
    }
  }
}

TEST_CASE("rows are scaled by a weight or by its sigmoid") {
  const Host host(tested_kernels());
  Values x({1, 2}, DType::f32);
  x.set(1, 3.0F);
  Values weight({1}, DType::f32);
  weight.set(0, -2.0F);
  Values y({1, 2}, DType::f32);
  scale_rows(host.context(), {.x = x.tensor(), .weight = weight.tensor(), .y = y.tensor()});
  CHECK(y.at(1) == Approx(-6));
  scale_rows(host.context(),
             {.x = x.tensor(), .weight = weight.tensor(), .y = y.tensor(), .sigmoid = true});
  CHECK(y.at(1) == Approx(3 / (1 + std::exp(2.0))));
}

TEST_CASE("no rows at all") {
  const Host host(tested_kernels());
  Values slot({2, 1}, DType::i32);
  std::fill_n(slot.tensor().as<std::int32_t>(), 2, -1);
  Values x = Values::random({2, 3}, DType::f32, 1);
  Values one({1, 3}, DType::f32);
  const Tensor none = one.tensor().slice(0, 0);
  spread_rows(host.context(), {x.tensor(), slot.tensor(), none});
  collect_rows(host.context(), {none, slot.tensor(), x.tensor()});
  for (std::int64_t i = 0; i < 6; ++i) CHECK(x.at(i) == 0);
}

TEST_CASE("scaled rows agree with the plain kernel") {
  const bool sigmoid = GENERATE(false, true);
  for (const DType dtype : float_types) {
    for (const Shape& shape : {Shape{1, 1}, Shape{5, 7}, Shape{64, 129}}) {
      const Scaled expected = scale(plain_kernels, shape, dtype, sigmoid);
      const Scaled got = scale(tested_kernels(), shape, dtype, sigmoid);
      CHECK(difference(got.y, expected.y) < tolerance(dtype));
      CHECK(difference(got.dx, expected.dx) < tolerance(dtype));
      CHECK(difference(got.d_weight, expected.d_weight) < tolerance(dtype));
    }
  }
}

TEST_CASE("the gradients of scaled rows agree with finite differences") {
  const bool sigmoid = GENERATE(false, true);
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Host host(*kernels);
    const Shape shape{4, 6};
    const Scaled made = scale(*kernels, shape, DType::f32, sigmoid);
    Values x = Values::random(shape, DType::f32, 1);
    Values weight = Values::random({4}, DType::f32, 2);
    Values dy = Values::random(shape, DType::f32, 3);
    Values y(shape, DType::f32);
    const auto loss = [&] {
      scale_rows(host.context(),
                 {.x = x.tensor(), .weight = weight.tensor(), .y = y.tensor(), .sigmoid = sigmoid});
      return weighted_sum(y, dy);
    };
    CHECK(slope_error(x, made.dx, 1e-2F, loss) < 1e-3);
    CHECK(slope_error(weight, made.d_weight, 1e-2F, loss) < 1e-3);
  }
}

TEST_CASE("a bias is added to rows in proportion to their weights") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Host host(*kernels);
    Values y({2, 1}, DType::f32);
    Values weight({2}, DType::f32);
    Values bias({1}, DType::f32);
    y.set(0, 1.0F), y.set(1, 2.0F), weight.set(0, 0.5F), weight.set(1, 3.0F), bias.set(0, 4.0F);
    bias_rows(host.context(), {.y = y.tensor(), .weight = weight.tensor(), .bias = bias.tensor()});
    CHECK(y.at(0) == 3);
    CHECK(y.at(1) == 14);
    Values d_bias({1}, DType::f32);
    Values d_weight({2}, DType::f32);
    d_bias.set(0, 1.0F), d_weight.set(0, 1.0F), d_weight.set(1, 1.0F);
    bias_rows_backward(host.context(), {.dy = y.tensor(),
                                        .weight = weight.tensor(),
                                        .bias = bias.tensor(),
                                        .d_bias = d_bias.tensor(),
                                        .d_weight = d_weight.tensor()});
    CHECK(d_bias.at(0) == 1 + 1.5 + 42);
    CHECK(d_weight.at(0) == 1 + 12);
    CHECK(d_weight.at(1) == 1 + 56);
    bias_rows_backward(host.context(), {.dy = y.tensor().slice(0, 0),
                                        .weight = weight.tensor().slice(0, 0),
                                        .bias = bias.tensor(),
                                        .d_bias = d_bias.tensor(),
                                        .d_weight = {}});
    bias_rows_backward(host.context(), {.dy = y.tensor(),
                                        .weight = weight.tensor(),
                                        .bias = bias.tensor(),
                                        .d_bias = d_bias.tensor(),
                                        .d_weight = {}});
    CHECK(d_bias.at(0) == 1 + 2 * 43.5);
  }
}

TEST_CASE("biases of rows agree with the plain kernel") {
  for (const DType dtype : float_types) {
    for (const Shape& shape : {Shape{1, 1}, Shape{5, 7}, Shape{64, 129}, Shape{300, 520}}) {
      const Biased expected = bias(plain_kernels, shape, dtype);
      const Biased got = bias(tested_kernels(), shape, dtype);
      CHECK(difference(got.y, expected.y) < tolerance(dtype));
      CHECK(difference(got.d_bias, expected.d_bias) < tolerance(dtype));
      CHECK(difference(got.d_weight, expected.d_weight) < tolerance(dtype));
    }
  }
}

TEST_CASE("the gradients of biases of rows agree with finite differences") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Host host(*kernels);
    const Shape shape{4, 6};
    Values bias = Values::random({6}, DType::f32, 1);
    Values weight = Values::random({4}, DType::f32, 2);
    Values dy = Values::random(shape, DType::f32, 3);
    Values d_bias({6}, DType::f32);
    Values d_weight({4}, DType::f32);
    bias_rows_backward(host.context(), {.dy = dy.tensor(),
                                        .weight = weight.tensor(),
                                        .bias = bias.tensor(),
                                        .d_bias = d_bias.tensor(),
                                        .d_weight = d_weight.tensor()});
    const auto loss = [&] {
      Values y(shape, DType::f32);
      bias_rows(host.context(),
                {.y = y.tensor(), .weight = weight.tensor(), .bias = bias.tensor()});
      return weighted_sum(y, dy);
    };
    CHECK(slope_error(bias, d_bias, 1e-2F, loss) < 1e-3);
    CHECK(slope_error(weight, d_weight, 1e-2F, loss) < 1e-3);
  }
}

TEST_CASE("rows that do not fit are refused") {
  const Host host(tested_kernels());
  Values slot = slots();
  Values x({3, 4}, DType::f32);
  Values y({5, 3}, DType::f32);
  CHECK(starts_with(failure_of([&] {
                      spread_rows(host.context(), {x.tensor(), slot.tensor(), y.tensor()});
                    }),
                    "[spread_rows] x and y"));
  CHECK(starts_with(failure_of([&] {
                      scale_rows(host.context(),
                                 {.x = x.tensor(), .weight = y.tensor(), .y = x.tensor()});
                    }),
                    "[scale_rows] weight"));
  Values weight({3}, DType::f32);
  Values bias({3}, DType::f32);
  CHECK(starts_with(failure_of([&] {
                      bias_rows(
                          host.context(),
                          {.y = x.tensor(), .weight = weight.tensor(), .bias = bias.tensor()});
                    }),
                    "[bias_rows] bias"));
  CHECK(starts_with(failure_of([&] {
                      bias_rows_backward(host.context(), {.dy = x.tensor(),
                                                          .weight = weight.tensor(),
                                                          .bias = x.tensor().view({12}).slice(0, 4),
                                                          .d_bias = bias.tensor(),
                                                          .d_weight = weight.tensor()});
                    }),
                    "[bias_rows_backward] bias and d_bias"));
}

}  // namespace rows_test
