// Products of the model's layers in forms that no run computes in, as the device has them: what
// TF32 and FP8 could gain.
#include <algorithm>
#include <array>

#include "base/philox.h"
#include "bench/ops/op_bench.h"
#include "ops/cuda_libraries.h"

namespace trainctl {

namespace {

struct FormRow {
  RateForm form;
  bool fast;
  const char* name;
};
constexpr FormRow forms[] = {{RateForm::tf32, false, "tf32"},
                             {RateForm::fp8_tensor, true, "fp8 tensor, fast sums"},
                             {RateForm::fp8_tensor, false, "fp8 tensor"},
                             {RateForm::fp8_rows, true, "fp8 rows, fast sums"},
                             {RateForm::fp8_rows, false, "fp8 rows"},
                             {RateForm::fp8_strips, false, "fp8 1 x 128"},
                             {RateForm::fp8_blocks, false, "fp8 128 x 128"}};

/// [rows, columns] codes of E4M3 from 2^-6 to less than 4, of both signs: products of zeros are
/// faster. A pattern, since there may be many.
Tensor codes(OpBench& bench, const std::string& name, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t longest = 1 << 20;
  const Philox random(1, 3);
  const Tensor all = bench.zeros(name, {rows, columns}, DType::u8).view({rows * columns});
  std::vector<std::uint8_t> pattern(static_cast<std::size_t>(std::min(longest, all.numel())));
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::uint32_t bits = random.bits(i);
    const std::uint32_t exponent = 1 + (bits >> 4) % 8;
    pattern[i] = static_cast<std::uint8_t>((bits & 0x80U) | exponent << 3 | (bits & 7U));
  }
  const auto length = static_cast<std::int64_t>(pattern.size());
  const Tensor source{pattern.data(), {length}, DType::u8, DeviceKind::cpu};
  for (std::int64_t at = 0; at < all.numel(); at += length) {
    const std::int64_t count = std::min(length, all.numel() - at);
    bench.store(source.slice(0, count), all.slice(at, at + count));
  }
  return all;
}

struct Operands {
  Tensor a, b, y;
};

std::string extents(std::int64_t rows, std::int64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

Operands fp32_operands(OpBench& bench, const RateProduct& product) {
  const auto [m, n, k] = std::array{product.m, product.n, product.k};
  return {bench.values("tf32 a " + extents(m, k), {m, k}, DType::f32),
          bench.values("tf32 b " + extents(n, k), {n, k}, DType::f32),
          bench.zeros("tf32 y " + extents(m, n), {m, n}, DType::f32)};
}

Operands fp8_operands(OpBench& bench, const RateProduct& product) {
  const auto [m, n, k] = std::array{product.m, product.n, product.k};
  return {codes(bench, "fp8 a " + extents(m, k), m, k),
          codes(bench, "fp8 b " + extents(n, k), n, k),
          bench.zeros("fp8 y " + extents(m, n), {m, n}, DType::bf16)};
}

const float* ones(OpBench& bench, std::int64_t count) {
  const auto one = [](std::int64_t) { return 1.0F; };
  return static_cast<const float*>(
      bench.filled<float>("scales " + std::to_string(count), {count}, one).data);
}

/// A product in each form that the device has.
void add_rates(OpBench& bench, const std::string& name, RateProduct product) {
  const OpContext* ops = &bench.ops();
  const auto [m, n, k] = std::array{product.m, product.n, product.k};
  const bool fits_fp8 = m % 16 == 0 && n % 16 == 0 && k % 16 == 0;
  const Operands wide = fp32_operands(bench, product);
  const Operands narrow = fits_fp8 ? fp8_operands(bench, product) : Operands{};
  for (const FormRow& row : forms) {
    const bool fp8 = row.form != RateForm::tf32;
    if (fp8 && !fits_fp8) continue;
    product.form = row.form;
    product.fast = row.fast;
    const Operands& of_form = fp8 ? narrow : wide;
    RateOperands operands{of_form.a.data, of_form.b.data, of_form.y.data};
    if (fp8) {
      operands.scales_a = ones(bench, scales_of(row.form, m, k, false).count);
      operands.scales_b = ones(bench, scales_of(row.form, n, k, true).count);
    }
    if (!cuda_product_rates().enqueue(*ops, product, operands)) continue;
    const double flops = 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
    bench.add("matmul", row.name + (" " + name), bytes_of({of_form.a, of_form.b, of_form.y}), flops,
              [=] { cuda_product_rates().enqueue(*ops, product, operands); });
  }
}

}  // namespace

void add_rate_cases(OpBench& bench) {
  if (bench.ops().stream->device() != DeviceKind::cuda) return;
  const ModelShape& model = bench.sizes().model;
  const std::int64_t tokens = bench.sizes().tokens;
  const std::int64_t ffn = bench.sizes().ffn;
  add_rates(bench, "mlp.up forward", {.m = tokens, .n = ffn, .k = model.hidden});
  add_rates(bench, "mlp.up input gradient", {.m = tokens, .n = model.hidden, .k = ffn});
  add_rates(bench, "mlp.up weight gradient", {.m = ffn, .n = model.hidden, .k = tokens});
}

}  // namespace trainctl
