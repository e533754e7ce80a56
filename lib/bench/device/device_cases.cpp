#include "bench/device/device_cases.h"

#include <string>

#include "bench/ops/attention_calls.h"
#include "ops/matmul.h"

namespace trainctl {

namespace {

struct Extents {
  std::int64_t rows, from, to;
};

/// Of models from a few million to some billion parameters.
constexpr Extents layers[] = {
    {128, 256, 256},     {256, 768, 768},     {512, 512, 2048},    {1024, 768, 768},
    {1024, 768, 2304},   {1024, 768, 3072},   {1024, 3072, 768},   {1024, 1024, 8192},
    {2048, 1024, 1024},  {2048, 1024, 4096},  {2048, 4096, 1024},  {4096, 768, 768},
    {4096, 768, 3072},   {4096, 1024, 50304}, {4096, 2048, 2048},  {4096, 4096, 4096},
    {8192, 2048, 8192},  {8192, 4096, 4096},  {8192, 4096, 14336}, {8192, 14336, 4096},
    {16384, 8192, 8192}, {16384, 8192, 28672}};

std::string sides(std::int64_t rows, std::int64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

}  // namespace

std::vector<ProductCase> product_cases(const OpBench& bench, double rate, double longest) {
  std::vector<ProductCase> cases;
  const OpContext* ops = &bench.ops();
  const auto add = [&](const PricedProduct& shape, const Matmul& args) {
    cases.push_back({shape, [ops, args] { matmul(*ops, args); }});
  };
  for (const auto& [rows, from, to] : layers) {
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(from * to);
    if (flops / rate > longest) continue;
    const Tensor x = bench.values("x " + sides(rows, from), {rows, from});
    const Tensor y = bench.values("y " + sides(rows, to), {rows, to});
    const Tensor w = bench.values("w " + sides(to, from), {to, from});
    const Tensor dw = bench.zeros("dw " + sides(to, from), {to, from}, DType::f32);
    add({rows, to, from}, {.a = x, .b = w, .c = y, .transpose_b = true});
    add({rows, from, to}, {.a = y, .b = w, .c = x});
    add({to, from, rows, 1, true},
        {.a = y, .b = x, .c = dw, .transpose_a = true, .accumulate = true});
  }
  return cases;
}

std::vector<AttentionCase> attention_cases(const OpBench& bench, double rate, double longest) {
  std::vector<AttentionCase> cases;
  for (const std::int64_t length : {256, 512, 1024, 2048, 4096, 8192}) {
    for (const std::int64_t dim : {64, 128}) {
      constexpr std::int64_t heads = 8;
      const double met = static_cast<double>(length + 1) / 2;
      const PricedAttention priced{length, heads, dim, length, length, met};
      if (5 * priced.flops() / rate > longest) continue;
      const AttentionCalls calls = attention_calls(
          bench, causal_shape(1, length, heads, heads, dim), " " + sides(length, heads * dim));
      cases.push_back({priced, false, calls.forward});
      cases.push_back({priced, true, calls.backward});
    }
  }
  return cases;
}

}  // namespace trainctl
