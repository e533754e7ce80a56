// The model's matrix products, forward and for both gradients, and squares of growing size.
#include "bench/ops/op_bench.h"
#include "ops/matmul.h"

namespace trainctl {

namespace {

constexpr std::int64_t smallest_square = 128;
constexpr std::int64_t largest_square = 16384;
constexpr double most_square_seconds = 0.01;

void add_product(OpBench& bench, const std::string& name, const Matmul& args, std::int64_t inner) {
  const double flops = 2.0 * static_cast<double>(args.c.numel()) * static_cast<double>(inner);
  bench.add("matmul", name, bytes_of({args.a, args.b, args.c}), flops,
            [ops = &bench.ops(), args] { matmul(*ops, args); });
}

/// y = x W^T of a layer, and its gradients. Layers of the same widths share their operands.
void add_layer(OpBench& bench, const std::string& name, std::int64_t rows, std::int64_t from,
               std::int64_t to, bool has_bias) {
  const auto rows_of = [&](std::int64_t width) {
    return bench.values("rows " + std::to_string(rows) + " x " + std::to_string(width),
                        {rows, width});
  };
  const std::string widths = std::to_string(to) + " x " + std::to_string(from);
  const Tensor x = rows_of(from);
  const Tensor y = from == to ? bench.values("rows out", {rows, to}) : rows_of(to);
  const Tensor w = bench.values("weight " + widths, {to, from});
  const Tensor dw = bench.zeros("gradient " + widths, {to, from}, DType::f32);
  const Tensor bias =
      has_bias ? bench.values("bias " + std::to_string(to), {to}, DType::f32) : Tensor{};
  add_product(bench, name + " forward", {.a = x, .b = w, .c = y, .bias = bias, .transpose_b = true},
              from);
  add_product(bench, name + " input gradient", {.a = y, .b = w, .c = x}, to);
  add_product(bench, name + " weight gradient",
              {.a = y, .b = x, .c = dw, .transpose_a = true, .accumulate = true}, rows);
}

/// The products of a GELU layer with what comes beside them.
void add_fused(OpBench& bench) {
  const OpContext* ops = &bench.ops();
  const ModelShape& model = bench.sizes().model;
  const std::int64_t rows = bench.sizes().tokens;
  const std::int64_t ffn = bench.sizes().ffn;
  const auto flops = static_cast<double>(2 * rows * model.hidden * ffn);
  const Tensor x = bench.values("fused x", {rows, model.hidden});
  const Tensor up = bench.values("fused up", {rows, ffn});
  const Tensor act = bench.values("fused act", {rows, ffn});
  const Tensor w = bench.values("fused weight", {ffn, model.hidden});
  const Tensor down = bench.values("fused down", {model.hidden, ffn});
  const Tensor bias = bench.values("fused bias", {ffn}, DType::f32);
  const Tensor dw = bench.zeros("fused gradient", {ffn, model.hidden}, DType::f32);
  const Tensor db = bench.zeros("fused bias gradient", {ffn}, DType::f32);
  const Matmul forward{.a = x, .b = w, .c = up, .bias = bias, .transpose_b = true};
  bench.add("matmul_gelu", "mlp.up", bytes_of({x, w, up, act}), flops,
            [=] { matmul_gelu(*ops, {.up = forward, .act = act}); });
  const Matmul backward{.a = x, .b = down, .c = act};
  bench.add("matmul_gelu_backward", "mlp.down", bytes_of({x, down, act, up}), flops,
            [=] { matmul_gelu_backward(*ops, {.dx = backward, .x = up}); });
  const Matmul weight{.a = act, .b = x, .c = dw, .transpose_a = true, .accumulate = true};
  bench.add("matmul_column_sums", "mlp.up", bytes_of({act, x, dw}), flops,
            [=] { matmul_column_sums(*ops, {.product = weight, .sums = db}); });
}

/// Those of queries, keys and values as one batch.
void add_batch(OpBench& bench) {
  const OpContext* ops = &bench.ops();
  const ModelShape& model = bench.sizes().model;
  const std::int64_t rows = bench.sizes().tokens;
  const AttentionForm& attention = bench.sizes().attention;
  const Tensor x = bench.values("batch x", {rows, model.hidden});
  std::vector<MatmulBatch::One> list;
  double bytes = bytes_of({x});
  double flops = 0;
  for (const std::int64_t features : {attention.q(), attention.kv(), attention.kv()}) {
    const std::string name = "batch " + std::to_string(list.size());
    const Tensor w = bench.values(name + " weight", {features, model.hidden});
    const Tensor y = bench.values(name + " y", {rows, features});
    list.push_back({.product = {.a = x, .b = w, .c = y, .transpose_b = true}});
    bytes += bytes_of({w, y});
    flops += static_cast<double>(2 * rows * model.hidden * features);
  }
  bench.add("matmul_batch", "attention.qkv", bytes, flops,
            [ops, list] { matmul_batch(*ops, {.list = list}); });
}

void add_squares(OpBench& bench, double rate) {
  std::int64_t largest = smallest_square;
  const auto seconds = [rate](std::int64_t n) {
    const auto width = static_cast<double>(n);
    return 2 * width * width * width / rate;
  };
  while (2 * largest <= largest_square && seconds(2 * largest) <= most_square_seconds) largest *= 2;
  const std::int64_t count = largest * largest;
  const Tensor a = bench.values("square a", {count});
  const Tensor b = bench.values("square b", {count});
  const Tensor c = bench.zeros("square c", {count}, bench.sizes().compute);
  for (std::int64_t n = smallest_square; n <= largest; n *= 2) {
    const auto part = [n](const Tensor& x) { return x.slice(0, n * n).view({n, n}); };
    add_product(bench, "square " + std::to_string(n),
                {.a = part(a), .b = part(b), .c = part(c), .transpose_b = true}, n);
  }
}

}  // namespace

void add_product_cases(OpBench& bench, double rate) {
  const OpSizes& sizes = bench.sizes();
  const ModelShape& model = sizes.model;
  const std::int64_t tokens = sizes.tokens;
  const std::int64_t ffn = sizes.ffn;
  const AttentionForm& attention = sizes.attention;
  add_layer(bench, "attention.q", tokens, model.hidden, attention.q(), model.qkv_bias);
  if (attention.kv_heads != attention.heads) {
    add_layer(bench, "attention.k", tokens, model.hidden, attention.kv(), model.qkv_bias);
  }
  add_layer(bench, "attention.out", tokens, attention.q(), model.hidden, model.out_bias);
  add_layer(bench, "mlp.up", tokens, model.hidden, ffn, model.mlp_bias);
  add_layer(bench, "mlp.down", tokens, ffn, model.hidden, model.mlp_bias);
  add_layer(bench, "head", sizes.head_rows, model.hidden, model.padded_vocab, false);
  add_fused(bench);
  add_batch(bench);
  add_squares(bench, rate);
}

}  // namespace trainctl
