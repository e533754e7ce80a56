#include "ops/matmul.h"

#include "catch.h"
#include "op_values.h"

namespace matmul_fused_test {

using namespace op_test;

namespace {

/// A device's library has a less exact GELU in fp32 than the kernels.
double gelu_tolerance(DType type) {
  return tests_device() && type == DType::f32 ? 1e-5 : tolerance(type);
}

/// Extents of c and of the sum; 24 and 64 columns are whole packs, as fused products of a device
/// want them.
constexpr std::int64_t extents[][3] = {{1, 24, 16}, {7, 5, 3}, {33, 64, 40}};

struct Operands {
  Values a, b, c, bias, beside;

  Operands(const std::int64_t (&e)[3], DType type, DType result)
      : a(Values::random(Shape{e[0], e[2]}, type, 1)),
        b(Values::random(Shape{e[1], e[2]}, type, 2, 0.3F)),
        c(Values::random(Shape{e[0], e[1]}, result, 3)),
        bias(Values::random(Shape{e[1]}, DType::f32, 4)),
        beside(Values::random(Shape{e[0], e[1]}, result, 5)) {}
};

}  // namespace

TEST_CASE("matmul_gelu is the product and then GELU") {
  const DType type = GENERATE(DType::f32, DType::bf16, DType::f16);
  const bool with_bias = GENERATE(false, true);
  for (const auto& extent : extents) {
    CAPTURE(extent[0], extent[1], extent[2], with_bias, name_of(type));
    Operands fast(extent, type, type);
    Operands plain(extent, type, type);
    const auto run = [&](const Kernels& kernels, Operands& x) {
      const Host host(kernels);
      matmul_gelu(host.context(), {.product = {.a = x.a.tensor(),
                                               .b = x.b.tensor(),
                                               .c = x.c.tensor(),
                                               .bias = with_bias ? x.bias.tensor() : Tensor{},
                                               .transpose_b = true},
                                   .other = x.beside.tensor()});
    };
    run(tested_kernels(), fast);
    run(plain_kernels, plain);
    CHECK(difference(fast.c, plain.c) < tolerance(type));
    CHECK(difference(fast.beside, plain.beside) < gelu_tolerance(type));
    const Host host(plain_kernels);
    Values act(plain.c.tensor().shape, type);
    activation_forward(host.context(),
                       {.kind = Activation::gelu, .x = fast.c.tensor(), .y = act.tensor()});
    CHECK(difference(fast.beside, act) < gelu_tolerance(type));
  }
}

TEST_CASE("matmul_gelu_backward is the product and then GELU's gradient") {
  const DType type = GENERATE(DType::f32, DType::bf16, DType::f16);
  for (const auto& extent : extents) {
    CAPTURE(extent[0], extent[1], extent[2], name_of(type));
    Operands fast(extent, type, type);
    Operands plain(extent, type, type);
    const auto run = [&](const Kernels& kernels, Operands& x) {
      const Host host(kernels);
      matmul_gelu_backward(host.context(), {.product = {.a = x.a.tensor(),
                                                        .b = x.b.tensor(),
                                                        .c = x.c.tensor(),
                                                        .transpose_b = true},
                                            .other = x.beside.tensor()});
    };
    run(tested_kernels(), fast);
    run(plain_kernels, plain);
    CHECK(difference(fast.c, plain.c) < gelu_tolerance(type));
    CHECK(fast.beside == plain.beside);
    Values product(plain.c.tensor().shape, type);
    const Host host(plain_kernels);
    matmul(
        host.context(),
        {.a = plain.a.tensor(), .b = plain.b.tensor(), .c = product.tensor(), .transpose_b = true});
    CHECK(difference(fast.c, product) > 0.01);
  }
}

TEST_CASE("matmul_column_sums is the product, and adds the sums of a's columns") {
  const DType type = GENERATE(DType::f32, DType::bf16, DType::f16);
  const bool accumulate = GENERATE(false, true);
  for (const auto& extent : extents) {
    CAPTURE(extent[0], extent[1], extent[2], accumulate, name_of(type));
    const std::int64_t rows = extent[2];
    Values a = Values::random(Shape{rows, extent[0]}, type, 1);
    Values b = Values::random(Shape{rows, extent[1]}, type, 2);
    const auto run = [&](const Kernels& kernels, Values& c, Values& sums) {
      const Host host(kernels);
      matmul_column_sums(host.context(), {.product = {.a = a.tensor(),
                                                      .b = b.tensor(),
                                                      .c = c.tensor(),
                                                      .transpose_a = true,
                                                      .accumulate = accumulate},
                                          .other = sums.tensor()});
    };
    Values fast_c = Values::random(Shape{extent[0], extent[1]}, DType::f32, 3);
    Values fast_sums = Values::random(Shape{extent[0]}, DType::f32, 4);
    Values plain_c = fast_c;
    Values plain_sums = fast_sums;
    const Values before = fast_sums;
    run(tested_kernels(), fast_c, fast_sums);
    run(plain_kernels, plain_c, plain_sums);
    CHECK(difference(fast_c, plain_c) < 1e-5);
    CHECK(difference(fast_sums, plain_sums) < 1e-5);
    for (std::int64_t column = 0; column < extent[0]; ++column) {
      double sum = before.at(column);
      for (std::int64_t row = 0; row < rows; ++row) sum += a.at(row * extent[0] + column);
      CHECK(fast_sums.at(column) == Approx(sum).margin(1e-4));
    }
  }
}

TEST_CASE("products with an epilogue name what does not fit") {
  const Host host(tested_kernels());
  Values a(Shape{3, 4}, DType::bf16);
  Values b(Shape{4, 5}, DType::bf16);
  Values c(Shape{3, 5}, DType::bf16);
  Values wide(Shape{3, 5}, DType::f32);
  Values vector(Shape{3}, DType::f32);
  const Matmul product{.a = a.tensor(), .b = b.tensor(), .c = c.tensor()};
  Matmul added = product;
  added.accumulate = true;
  CHECK(failure_of([&] { matmul_gelu(host.context(), {.product = added, .other = c.tensor()}); }) ==
        "[matmul_gelu] up must be overwritten and of the type of its operands: up [3, 5] bf16");
  CHECK(failure_of([&] {
          matmul_gelu(host.context(), {.product = product, .other = wide.tensor()});
        }) == "[matmul_gelu] act must be as up: act [3, 5] fp32, up [3, 5] bf16");
  CHECK(failure_of([&] {
          matmul_gelu_backward(host.context(), {.product = product, .other = c.tensor()});
        }) ==
        "[matmul_gelu_backward] x must be as dx, in other memory: x [3, 5] bf16, dx [3, 5] bf16");
  CHECK(starts_with(failure_of([&] {
                      matmul_column_sums(host.context(),
                                         {.product = product, .other = vector.tensor()});
                    }),
                    "[matmul_column_sums] the product must be a^T op(b) in fp32"));
  CHECK(
      failure_of([&] {
        matmul_column_sums(
            host.context(),
            {.product = {.a = b.tensor(), .b = b.tensor(), .c = wide.tensor(), .transpose_a = true},
             .other = vector.tensor()});
      }).rfind("[matmul]", 0) == 0);
}

}  // namespace matmul_fused_test
