#include "ops/matmul.h"

#include <vector>

#include "catch.h"
#include "op_values.h"

namespace matmul_batch_test {

using namespace op_test;

namespace {

/// Rows of x, and features of each product's y.
struct Sizes {
  std::int64_t rows, inner;
  std::vector<std::int64_t> features;
};

/// Neighbours with equal features are one batch on a device.
const Sizes all_sizes[] = {
    {7, 16, {24, 24, 24}}, {33, 40, {64, 16, 16}}, {5, 3, {5, 7}}, {16, 8, {8}}};

/// Where the features of each product begin, and where the last end.
std::vector<std::int64_t> begins_of(const Sizes& sizes, std::int64_t gap) {
  std::vector<std::int64_t> begins{0};
  for (const std::int64_t features : sizes.features) {
    begins.push_back(begins.back() + features + (begins.size() == 2 ? gap : 0));
  }
  return begins;
}

/// The operands of products that all lie in the same memory, equally far apart or not.
struct Operands {
  std::vector<std::int64_t> begins;
  Values x, weights, outputs, vectors;

  Operands(const Sizes& sizes, DType type, DType result, std::int64_t gap)
      : begins(begins_of(sizes, gap)),
        x(Values::random(Shape{sizes.rows, sizes.inner}, type, 1)),
        weights(Values::random(Shape{begins.back() * sizes.inner}, type, 2, 0.3F)),
        outputs(Values::random(Shape{begins.back() * sizes.rows}, result, 3)),
        vectors(Values::random(Shape{begins.back()}, DType::f32, 4)) {}
};

Tensor part(Values& all, std::int64_t begin, std::int64_t rows, std::int64_t width) {
  return all.tensor().slice(begin * width, (begin + rows) * width).view({rows, width});
}

}  // namespace

TEST_CASE("a batch of products is one product after the other") {
  const DType type = GENERATE(DType::f32, DType::bf16, DType::f16);
  const bool with_bias = GENERATE(false, true);
  const std::int64_t gap = GENERATE(0, 8);
  for (const Sizes& sizes : all_sizes) {
    CAPTURE(sizes.features, with_bias, gap, name_of(type));
    const auto run = [&](const Kernels& kernels, Operands& own) {
      std::vector<FusedMatmul> list;
      for (std::size_t i = 0; i < sizes.features.size(); ++i) {
        const std::int64_t features = sizes.features[i];
        const std::int64_t begin = own.begins[i];
        list.push_back(
            {.product = {
                 .a = own.x.tensor(),
                 .b = part(own.weights, begin, features, sizes.inner),
                 .c = part(own.outputs, begin, features, sizes.rows).view({sizes.rows, features}),
                 .bias = with_bias ? own.vectors.tensor().slice(begin, begin + features) : Tensor{},
                 .transpose_b = true}});
      }
      const Host host(kernels);
      matmul_batch(host.context(), list);
    };
    Operands fast(sizes, type, type, gap);
    Operands plain(sizes, type, type, gap);
    const Values before = plain.outputs;
    run(tested_kernels(), fast);
    run(plain_kernels, plain);
    CHECK(difference(fast.outputs, plain.outputs) < tolerance(type));
    CHECK(difference(plain.outputs, before) > 0.1);
  }
}

TEST_CASE("a batch of gradients adds to each weight and to each bias") {
  const DType type = GENERATE(DType::f32, DType::bf16, DType::f16);
  const bool with_sums = GENERATE(false, true);
  const std::int64_t gap = GENERATE(0, 8);
  for (const Sizes& sizes : all_sizes) {
    CAPTURE(sizes.features, with_sums, gap, name_of(type));
    Operands own(sizes, type, DType::f32, gap);
    const std::int64_t all = own.vectors.tensor().numel();
    Values dy = Values::random(Shape{all * sizes.rows}, type, 5);
    const auto run = [&](const Kernels& kernels, Values& gradients, Values& sums, bool together) {
      const Host host(kernels);
      std::vector<FusedMatmul> list;
      for (std::size_t i = 0; i < sizes.features.size(); ++i) {
        const std::int64_t features = sizes.features[i];
        const std::int64_t begin = own.begins[i];
        const Matmul product{
            .a = part(dy, begin, features, sizes.rows).view({sizes.rows, features}),
            .b = own.x.tensor(),
            .c = part(gradients, begin, features, sizes.inner),
            .transpose_a = true,
            .accumulate = true};
        const Tensor sum = sums.tensor().slice(begin, begin + features);
        list.push_back({product, with_sums ? sum : Tensor{}});
        if (together) continue;
        if (with_sums) {
          matmul_column_sums(host.context(), {.product = product, .other = sum});
        } else {
          matmul(host.context(), product);
        }
      }
      if (together) matmul_batch(host.context(), list);
    };
    Values gradients = Values::random(Shape{all * sizes.inner}, DType::f32, 6);
    Values sums = Values::random(Shape{all}, DType::f32, 7);
    Values plain_gradients = gradients;
    Values plain_sums = sums;
    run(tested_kernels(), gradients, sums, true);
    run(plain_kernels, plain_gradients, plain_sums, false);
    CHECK(difference(gradients, plain_gradients) < 1e-5);
    CHECK(difference(sums, plain_sums) < 1e-5);
  }
}

TEST_CASE("a batch names the product that does not fit") {
  const Host host(tested_kernels());
  Values a(Shape{3, 4}, DType::bf16);
  Values b(Shape{4, 5}, DType::bf16);
  Values c(Shape{3, 5}, DType::bf16);
  Values vector(Shape{3}, DType::f32);
  const Matmul right{.a = a.tensor(), .b = b.tensor(), .c = c.tensor()};
  Matmul wrong = right;
  wrong.transpose_b = true;
  const auto failure = [&](const FusedMatmul& second) {
    const std::vector<FusedMatmul> list{{right}, second};
    return failure_of([&] { matmul_batch(host.context(), list); });
  };
  CHECK(starts_with(failure({wrong}), "[matmul] a b^T must fit c"));
  CHECK(starts_with(failure({right, vector.tensor()}), "[matmul_column_sums] the product must be"));
}

}  // namespace matmul_batch_test
