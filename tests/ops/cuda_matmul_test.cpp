#include <cstdlib>
#include <cstring>

#include "../device/cuda_available.h"
#include "catch.h"
#include "cuda_device_copy.h"
#include "ops/cuda_libraries.h"
#include "ops/matmul.h"

using namespace trainctl;

namespace {

struct Types {
  DType operand, result;
  double tolerance;  // of the largest element: the order of the sum, then the result's rounding
};
constexpr Types type_rows[] = {{DType::f32, DType::f32, 1e-5},
                               {DType::bf16, DType::f32, 1e-5},
                               {DType::bf16, DType::bf16, 1.0 / 128}};

enum class Mode { overwrite, accumulate, bias };

struct Case {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  Mode mode;
  Types types;
  std::int64_t offset;  // of every operand on the device, in bytes
};

double run_case(const Case& one) {
  const Shape a_shape = one.transpose_a ? Shape{one.k, one.m} : Shape{one.m, one.k};
  const Shape b_shape = one.transpose_b ? Shape{one.n, one.k} : Shape{one.k, one.n};
  const HostTensor a = HostTensor::random(a_shape, one.types.operand, 1);
  const HostTensor b = HostTensor::random(b_shape, one.types.operand, 2);
  const HostTensor c = HostTensor::random({one.m, one.n}, one.types.result, 3, 5);
  HostTensor bias;
  if (one.mode == Mode::bias) bias = HostTensor::random({one.n}, DType::f32, 4);

  Matmul args;
  args.transpose_a = one.transpose_a;
  args.transpose_b = one.transpose_b;
  args.accumulate = one.mode == Mode::accumulate;
  DeviceCopy device;
  args.a = device.put(a, one.offset);
  args.b = device.put(b, one.offset);
  args.c = device.put(c, one.offset);
  args.bias = device.put(bias, one.offset);
  matmul(device.context(), args);
  const HostTensor got = device.get(args.c);

  args.a = a.tensor();
  args.b = b.tensor();
  args.c = c.tensor();
  args.bias = bias.tensor();
  matmul(plain_context(), args);
  return difference(got, c);
}

void check_case(const Case& one) {
  CAPTURE(one.m, one.n, one.k, one.transpose_a, one.transpose_b, static_cast<int>(one.mode),
          one.offset);
  CAPTURE(name_of(one.types.operand), name_of(one.types.result));
  CHECK(run_case(one) <= one.types.tolerance);
}

}  // namespace

TEST_CASE("CUDA matrix products are the plain ones") {
  if (!cuda_available()) return;
  const Shape extents[] = {{1, 8, 16}, {7, 5, 3}, {64, 128, 32}, {129, 72, 200}};
  for (const Shape& extent : extents) {
    for (const Types& types : type_rows) {
      for (const Mode mode : {Mode::overwrite, Mode::accumulate, Mode::bias}) {
        for (const int transposes : {0, 1, 2, 3}) {
          check_case({extent[0], extent[1], extent[2], (transposes & 1) != 0, (transposes & 2) != 0,
                      mode, types, 0});
        }
      }
    }
  }
}

TEST_CASE("CUDA matrix products take operands that are aligned to their elements only") {
  if (!cuda_available()) return;
  for (const Types& types : type_rows) {
    check_case({64, 128, 32, false, true, Mode::bias, types, 4});
    check_case({64, 128, 32, true, false, Mode::accumulate, types, 16});
  }
}

TEST_CASE("CUDA matrix products over no elements are zero, or add nothing") {
  if (!cuda_available()) return;
  DeviceCopy device;
  const HostTensor c = HostTensor::random({3, 4}, DType::f32, 3);
  Matmul args;
  args.c = device.put(c);
  args.a = Tensor{args.c.data, Shape{3, 0}, DType::f32, DeviceKind::cuda};
  args.b = Tensor{args.c.data, Shape{0, 4}, DType::f32, DeviceKind::cuda};
  args.accumulate = true;
  device.context().kernels->matmul(device.context(), args);
  CHECK(device.get(args.c).bytes() == c.bytes());
  args.accumulate = false;
  device.context().kernels->matmul(device.context(), args);
  CHECK(device.get(args.c).bytes() == HostTensor({3, 4}, DType::f32).bytes());
}

TEST_CASE("CUDA matrix products whose extents vary are the others") {
  if (!cuda_available()) return;
  DeviceCopy device;
  for (std::int64_t rows = 1; rows < 20; rows += 3) {
    Matmul args;
    args.a = device.put(HostTensor::random({rows, 40}, DType::bf16, 1));
    args.b = device.put(HostTensor::random({40, 24}, DType::bf16, 2));
    args.c = device.put(HostTensor({rows, 24}, DType::f32));
    args.bias = device.put(HostTensor::random({24}, DType::f32, 3));
    matmul(device.context(), args);
    const HostTensor kept = device.get(args.c);
    args.varies = true;
    args.c = device.put(HostTensor({rows, 24}, DType::f32));
    matmul(device.context(), args);
    CHECK(device.get(args.c).bytes() == kept.bytes());
  }
}

TEST_CASE("the same CUDA matrix product twice has the same bits") {
  if (!cuda_available()) return;
  DeviceCopy device;
  Matmul args;
  args.a = device.put(HostTensor::random({256, 4096}, DType::bf16, 1));
  args.b = device.put(HostTensor::random({4096, 64}, DType::bf16, 2));
  args.c = device.put(HostTensor({256, 64}, DType::f32));
  matmul(device.context(), args);
  const HostTensor first = device.get(args.c);
  matmul(device.context(), args);
  CHECK(device.get(args.c).bytes() == first.bytes());
}

namespace {

/// Whether the device is the emulated one, whose epilogues and orders of sums are known to the bit.
bool is_emulated() {
  const char* module = std::getenv("TRAINCTL_CUDA_MODULE");
  return cuda_available() && module != nullptr && std::strstr(module, "cuda_on_host") != nullptr;
}

/// a b^T of two lists of operands, one product of each in a batch; the results.
std::vector<HostTensor> products_of(bool by_shape, std::int64_t offset, int multiprocessors,
                                    std::int64_t count) {
  const std::int64_t m = 64;
  const std::int64_t n = 32;
  const std::int64_t k = 200;
  DeviceCopy device;
  const Tensor a = device.put(HostTensor::random({m, k}, DType::f32, 1), offset);
  const Tensor all_b = device.put(HostTensor::random({count * n * k}, DType::f32, 2), offset);
  const Tensor all_c = device.put(HostTensor({count * m * n}, DType::f32), offset);
  std::vector<FusedMatmul> list;
  for (std::int64_t i = 0; i < count; ++i) {
    list.push_back({.product = {.a = a,
                                .b = all_b.slice(i * n * k, (i + 1) * n * k).view({n, k}),
                                .c = all_c.slice(i * m * n, (i + 1) * m * n).view({m, n}),
                                .transpose_b = true,
                                .by_shape = by_shape}});
  }
  OpContext context = device.context();
  context.product_sms = multiprocessors;
  matmul_batch(context, list);
  std::vector<HostTensor> results;
  for (const FusedMatmul& one : list) results.push_back(device.get(one.product.c));
  return results;
}

bool same_bits(const HostTensor& one, const HostTensor& other) {
  return one.bytes() == other.bytes();
}

}  // namespace

TEST_CASE("GELU in a product's epilogue reads what is not rounded yet") {
  if (!is_emulated()) return;
  DeviceCopy device;
  for (const std::int64_t columns : {128, 60}) {
    Matmul product{.a = device.put(HostTensor::random({64, 32}, DType::bf16, 1)),
                   .b = device.put(HostTensor::random({columns, 32}, DType::bf16, 2)),
                   .c = device.put(HostTensor({64, columns}, DType::bf16)),
                   .bias = device.put(HostTensor::random({columns}, DType::f32, 3)),
                   .transpose_b = true};
    const Tensor act = device.put(HostTensor({64, columns}, DType::bf16));
    matmul_gelu(device.context(), {.product = product, .other = act});
    const Tensor rounded = device.put(HostTensor({64, columns}, DType::bf16));
    activation_forward(device.context(), {.kind = Activation::gelu, .x = product.c, .y = rounded});
    // 60 is not divisible by 8: there the product and GELU are two.
    CHECK(same_bits(device.get(act), device.get(rounded)) == (columns == 60));

    const Tensor x = device.put(device.get(product.c));
    product.bias = {};
    matmul_gelu_backward(device.context(), {.product = product, .other = x});
    const HostTensor fused = device.get(product.c);
    matmul(device.context(), product);
    activation_backward(device.context(),
                        {.kind = Activation::gelu, .x = x, .dy = product.c, .dx = product.c});
    CHECK(same_bits(fused, device.get(product.c)) == (columns == 60));
  }
}

TEST_CASE("sums in a product's epilogue are those of the product's operand") {
  if (!is_emulated()) return;
  DeviceCopy device;
  const HostTensor dy = HostTensor::random({50, 24}, DType::bf16, 1);
  const HostTensor before = HostTensor::random({24}, DType::f32, 4);
  const Tensor sums = device.put(before);
  matmul_column_sums(device.context(),
                     {.product = {.a = device.put(dy),
                                  .b = device.put(HostTensor::random({50, 40}, DType::bf16, 2)),
                                  .c = device.put(HostTensor({24, 40}, DType::f32)),
                                  .transpose_a = true,
                                  .accumulate = true},
                      .other = sums});
  const HostTensor got = device.get(sums);
  for (std::int64_t column = 0; column < 24; ++column) {
    float sum = 0;  // one row after the other, as the emulated library adds
    for (std::int64_t row = 0; row < 50; ++row) sum += static_cast<float>(dy.at(row * 24 + column));
    CHECK(static_cast<float>(got.at(column)) == static_cast<float>(before.at(column)) + sum);
  }
}

TEST_CASE("a CUDA product by its shape has the same bits at any place and among others") {
  if (!cuda_available()) return;
  struct Setting {
    std::int64_t offset;
    int multiprocessors;
    std::int64_t count;
  };
  for (const Setting& one : {Setting{64, 0, 1}, Setting{128, 1, 1}, Setting{0, 2, 1},
                             Setting{0, 0, 3}, Setting{192, 1, 2}}) {
    CAPTURE(one.offset, one.multiprocessors, one.count);
    const auto bits = [&](bool by_shape, const Setting& setting) {
      return products_of(by_shape, setting.offset, setting.multiprocessors, setting.count)
          .front()
          .bytes();
    };
    CHECK(bits(true, one) == bits(true, {0, 0, 1}));
    // The emulated library takes the sums of other products in another order there.
    const bool turned = ((one.offset > 0) != (one.multiprocessors > 0)) != (one.count > 1);
    if (is_emulated()) CHECK((bits(false, one) == bits(false, {0, 0, 1})) != turned);
  }
}

TEST_CASE("a CUDA product by its shape is not timed, and refuses what it cannot be") {
  if (!cuda_available()) return;
  DeviceCopy device;
  Matmul args{.a = device.put(HostTensor::random({16, 32}, DType::f32, 1)),
              .b = device.put(HostTensor::random({32, 8}, DType::f32, 2)),
              .c = device.put(HostTensor({16, 8}, DType::f32)),
              .by_shape = true};
  cuda_products().note();
  matmul(device.context(), args);
  CHECK(cuda_products().noted().empty());
  args.a = device.put(HostTensor::random({16, 32}, DType::f32, 1), 32);
  CHECK_THROWS_WITH(matmul(device.context(), args),
                    Catch::Contains("begin at multiples of 64 bytes"));
  args.bias = device.put(HostTensor::random({8}, DType::f32, 3));
  CHECK_THROWS_WITH(matmul(device.context(), args), Catch::Contains("accumulate and by_shape"));
}
