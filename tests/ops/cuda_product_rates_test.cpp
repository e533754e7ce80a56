// Products in TF32 and FP8 on the device against sums in double of the same numbers.
#include "ops/cuda_libraries.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../device/cuda_available.h"
#include "base/philox.h"
#include "catch.h"
#include "cuda_device_copy.h"
#include "device/cuda_device.h"

using namespace trainctl;

namespace {

constexpr std::int64_t m = 32, n = 256,
                       k = 384;  // three strips, so that rows of blocks are padded

/// E4M3: 4 bits of exponent, 3 of fraction (Micikevicius et al., "FP8 formats for deep learning").
double decoded(std::uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int fraction = code & 7;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (code & 0x80) != 0 ? -size : size;
}

struct Fp8Operand {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  RateScales order;
  double at(std::int64_t row, std::int64_t column) const {
    const std::int64_t scale =
        row / order.rows * order.row_step + column / order.columns * order.column_step;
    return decoded(codes[static_cast<std::size_t>(row * k + column)]) *
           scales[static_cast<std::size_t>(scale)];
  }
};

Fp8Operand random_operand(RateForm form, std::int64_t rows, bool is_b) {
  const Philox random(7, is_b ? 1 : 0);
  Fp8Operand made;
  made.order = scales_of(form, rows, k, is_b);
  for (std::int64_t i = 0; i < rows * k; ++i) {
    const std::uint32_t bits = random.bits(static_cast<std::uint64_t>(i));
    const std::uint32_t exponent = (bits >> 4) % 10;  // 0: below the least normal number
    made.codes.push_back(static_cast<std::uint8_t>((bits & 0x80U) | exponent << 3 | (bits & 7U)));
  }
  for (std::int64_t i = 0; i < made.order.count; ++i) {
    made.scales.push_back(0.5F + random.uniform(static_cast<std::uint64_t>(rows * k + i)));
  }
  return made;
}

template <class A, class B>
std::vector<double> product_of(const A& a, const B& b) {
  std::vector<double> y;
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < n; ++column) {
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += a(row, i) * b(column, i);
      y.push_back(sum);
    }
  }
  return y;
}

/// The largest difference over the largest number.
double difference(const HostTensor& got, const std::vector<double>& expected) {
  double most = 0;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double found = got.at(static_cast<std::int64_t>(i));
    if (!std::isfinite(found)) return std::numeric_limits<double>::infinity();
    most = std::max(most, std::abs(found - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return most / largest;
}

}  // namespace

TEST_CASE("products in FP8 have each kind of scales where cuBLASLt says") {
  if (!cuda_available()) return;
  const bool on_host = cuda_module().properties(0).name == "CUDA on the host";
  for (const RateForm form :
       {RateForm::fp8_tensor, RateForm::fp8_rows, RateForm::fp8_strips, RateForm::fp8_blocks}) {
    for (const bool fast : {false, true}) {
      if (fast && (form == RateForm::fp8_strips || form == RateForm::fp8_blocks)) continue;
      CAPTURE(static_cast<int>(form), fast);
      const Fp8Operand a = random_operand(form, m, false);
      const Fp8Operand b = random_operand(form, n, true);
      DeviceCopy device;
      const Tensor y = device.put(HostTensor({m, n}, DType::bf16));
      const auto bytes = [&device](const auto& list) {
        return device.put_bytes(list.data(),
                                static_cast<std::int64_t>(list.size() * sizeof list[0]));
      };
      const bool known = cuda_products().enqueue_rate(
          device.context(), {.m = m, .n = n, .k = k, .form = form, .fast = fast},
          {.a = bytes(a.codes),
           .b = bytes(b.codes),
           .y = y.data,
           .scales_a = static_cast<const float*>(bytes(a.scales)),
           .scales_b = static_cast<const float*>(bytes(b.scales))});
      CHECK((known || !on_host));  // a device need not have all
      if (!known) continue;
      const auto expected =
          product_of([&](std::int64_t row, std::int64_t i) { return a.at(row, i); },
                     [&](std::int64_t row, std::int64_t i) { return b.at(row, i); });
      CHECK(difference(device.get(y), expected) < 1.0 / 128);
    }
  }
}

TEST_CASE("products in TF32 read 10 bits of fraction") {
  if (!cuda_available()) return;
  const HostTensor a = HostTensor::random({m, k}, DType::f32, 1);
  const HostTensor b = HostTensor::random({n, k}, DType::f32, 2);
  DeviceCopy device;
  const Tensor y = device.put(HostTensor({m, n}, DType::f32));
  REQUIRE(cuda_products().enqueue_rate(
      device.context(), {.m = m, .n = n, .k = k, .form = RateForm::tf32},
      {.a = device.put(a).data, .b = device.put(b).data, .y = y.data}));
  const auto expected =
      product_of([&](std::int64_t row, std::int64_t i) { return a.at(row * k + i); },
                 [&](std::int64_t row, std::int64_t i) { return b.at(row * k + i); });
  const double found = difference(device.get(y), expected);
  CHECK(found < 2e-3);
  CHECK(found > 1e-5);
}
