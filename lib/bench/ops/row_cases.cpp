// Norms, activations and other operations on the rows of a micro-batch.

#include <algorithm>
#include <array>
#include <memory>

#include "base/philox.h"
#include "base/text.h"
#include "bench/ops/op_bench.h"
#include "ops/activation.h"
#include "ops/cross_entropy.h"
#include "ops/cuda_libraries.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/optimizer.h"
#include "ops/rope.h"
#include "ops/rows.h"
#include "ops/update_rules.h"

namespace trainctl {

namespace {

/// [tokens, hidden] operands.
struct Rows {
  explicit Rows(const OpBench& bench)
      : shape{bench.sizes().tokens, bench.sizes().model.hidden},
        x(bench.values("x", shape)),
        residual(bench.values("residual", shape)),
        y(bench.values("y", shape)),
        dy(bench.values("dy", shape)),
        sum(bench.values("sum", shape)) {}
  Shape shape;
  Tensor x, residual, y, dy, sum;
};

void add_norms(OpBench& bench) {
  const Rows r(bench);
  const OpContext* ops = &bench.ops();
  const Shape hidden{bench.sizes().model.hidden};
  const Shape tokens{bench.sizes().tokens};
  const Tensor weight = bench.values("norm.weight", hidden, DType::f32);
  const Tensor bias = bench.values("norm.bias", hidden, DType::f32);
  const Tensor dweight = bench.zeros("norm.dweight", hidden, DType::f32);
  const Tensor dbias = bench.zeros("norm.dbias", hidden, DType::f32);
  const Tensor mean = bench.zeros("norm.mean", tokens, DType::f32);
  const Tensor rstd = bench.zeros("norm.rstd", tokens, DType::f32);
  const double fused = bytes_of({r.x, r.residual, r.sum, r.y});
  for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
    const bool layer = kind == NormKind::layer_norm;
    const NormForward forward{.kind = kind,
                              .x = r.x,
                              .residual = {},
                              .sum = {},
                              .weight = weight,
                              .bias = layer ? bias : Tensor{},
                              .y = r.y,
                              .mean = layer ? mean : Tensor{},
                              .rstd = rstd};
    NormForward with_residual = forward;
    with_residual.residual = r.residual;
    with_residual.sum = r.sum;
    const NormBackward backward{.kind = kind,
                                .dy = r.dy,
                                .x = r.x,
                                .weight = weight,
                                .mean = forward.mean,
                                .rstd = rstd,
                                .d_residual = {},
                                .dx = r.y,
                                .dweight = dweight,
                                .dbias = layer ? dbias : Tensor{}};
    const std::string name(name_of_forward(kind));
    bench.add(
        {"norm_forward", name, bytes_of({r.x, r.y}), 0, [=] { norm_forward(*ops, forward); }});
    bench.add({"norm_forward", name + " and residual", fused, 0,
               [=] { norm_forward(*ops, with_residual); }});
    bench.add({"norm_backward", std::string(name_of_backward(kind)), bytes_of({r.dy, r.x, r.y}), 0,
               [=] { norm_backward(*ops, backward); }});
  }
  bench.add("norm_sums", "", bytes_of({r.x}), 0,
            [=] { norm_sums(*ops, {.x = r.x, .sums = rstd}); });
  bench.add("norm_sums", "backward", bytes_of({r.x, r.dy}), 0,
            [=] { norm_sums(*ops, {.x = r.x, .dy = r.dy, .weight = weight, .sums = rstd}); });
}

void add_activations(OpBench& bench) {
  const OpContext* ops = &bench.ops();
  const std::int64_t ffn = bench.sizes().ffn;
  const Shape shape{bench.sizes().tokens, ffn};
  const Tensor up = bench.values("up", shape);
  const Tensor gate = bench.values("gate", shape);
  const Tensor act = bench.values("act", shape);
  const Tensor dup = bench.values("dup", shape);
  const Tensor dgate = bench.values("dgate", shape);
  const Tensor db = bench.zeros("up.dbias", {ffn}, DType::f32);
  for (const Activation kind : {Activation::gelu, Activation::silu, Activation::relu2}) {
    const auto forward = [kind](bool gated) { return std::string(name_of_forward(kind, gated)); };
    const auto backward = [kind](bool gated) { return std::string(name_of_backward(kind, gated)); };
    bench.add({"activation_forward", forward(false), bytes_of({up, act}), 0,
               [=] { activation_forward(*ops, {.kind = kind, .x = up, .y = act}); }});
    bench.add({"activation_backward", backward(false), bytes_of({up, act, dup}), 0,
               [=] { activation_backward(*ops, {.kind = kind, .x = up, .dy = act, .dx = dup}); }});
    bench.add({"activation_forward", forward(true), bytes_of({gate, up, act}), 0,
               [=] { activation_forward(*ops, {.kind = kind, .x = gate, .y = act, .up = up}); }});
    bench.add(
        {"activation_backward", backward(true), bytes_of({gate, up, act, dgate, dup}), 0, [=] {
           activation_backward(
               *ops, {.kind = kind, .x = gate, .dy = act, .dx = dgate, .up = up, .dup = dup});
         }});
  }
  bench.add("bias_gradient", "", bytes_of({dup}), 0,
            [=] { bias_gradient(*ops, {.dy = dup, .db = db}); });
}

void add_elementwise(OpBench& bench) {
  const Rows r(bench);
  const OpContext* ops = &bench.ops();
  bench.add("add", "", 3 * bytes_of({r.x}), 0,
            [=] { add(*ops, {.a = r.x, .b = r.residual, .y = r.y}); });
  const bool wide = bench.sizes().compute == DType::f32;
  const Tensor other = bench.values("other", r.shape, wide ? DType::bf16 : DType::f32);
  bench.add("cast", "", bytes_of({r.x, other}), 0, [=] { cast(*ops, {.x = r.x, .y = other}); });
  const Tensor token = bench.filled<std::int64_t>("global_token", {bench.sizes().tokens},
                                                  [](std::int64_t i) { return i; });
  const StepState* state = bench.state("dropout.state");
  const Tensor dropped = bench.values("dropped", r.shape);
  bench.add("dropout", "", 2 * bytes_of({dropped}), 0, [=] {
    dropout(*ops, {.x = dropped,
                   .global_token = token,
                   .features = dropped.columns(),
                   .key = {.state = state, .site = 1, .probability = 0.1F}});
  });
}

void add_positions(OpBench& bench) {
  const OpContext* ops = &bench.ops();
  const ModelShape& model = bench.sizes().model;
  const std::int64_t length = model.seq_length;
  const Tensor turned = bench.values("turned", {bench.sizes().tokens, bench.sizes().attention.q()});
  const Tensor position = bench.filled<std::int32_t>(
      "position", {bench.sizes().tokens},
      [length](std::int64_t i) { return static_cast<std::int32_t>(i % length); });
  const bool turns = !model.ropes.empty();
  const std::int64_t size = turns ? model.ropes.front().size : model.head_dim;
  const bool adjacent = turns && model.ropes.front().interleaved;
  const Tensor table = bench.values("rope.table", {length, size}, DType::f32);
  bench.add("rope", "", 2 * bytes_of({turned}), 0, [=, head_dim = model.head_dim] {
    rope(*ops, {.x = turned,
                .position = position,
                .table = table,
                .head_dim = head_dim,
                .adjacent = adjacent});
  });
  const Tensor moved = bench.values("moved", turned.shape);
  bench.add("swap_blocks", "", bytes_of({turned, moved}), 0,
            [=, rows = bench.sizes().tokens, columns = model.heads] {
              swap_blocks(*ops, {.x = turned, .y = moved, .rows = rows, .columns = columns});
            });
  bench.add("copy_rows", "", bytes_of({turned}), 0,
            [=, rows = bench.sizes().tokens, step = model.q_features()] {
              copy_rows(*ops, {.x = turned,
                               .y = moved,
                               .rows = rows,
                               .length = step / 2,
                               .x_step = step,
                               .y_step = step});
            });
}

void add_embedding(OpBench& bench) {
  const Rows r(bench);
  const OpContext* ops = &bench.ops();
  const ModelShape& model = bench.sizes().model;
  const Tensor indices = bench.filled<std::int32_t>(
      "tokens", {bench.sizes().tokens}, [vocab = model.vocab](std::int64_t i) {
        return static_cast<std::int32_t>(i * 7919 % vocab);  // spread over the table
      });
  const Shape shape{model.padded_vocab, model.hidden};
  const Tensor table = bench.values("table", shape);
  const Tensor dtable = bench.zeros("dtable", shape, DType::f32);
  bench.add("embedding_forward", "", 2 * bytes_of({r.y}), 0,
            [=] { embedding_forward(*ops, {.indices = indices, .table = table, .y = r.y}); });
  const double sums = 2 * 4 * static_cast<double>(r.dy.numel());
  bench.add("embedding_backward", "", bytes_of({r.dy}) + sums, 0,
            [=] { embedding_backward(*ops, {.indices = indices, .dy = r.dy, .dtable = dtable}); });
}

}  // namespace

void add_row_cases(OpBench& bench) {
  add_norms(bench);
  add_activations(bench);
  add_elementwise(bench);
  add_positions(bench);
  add_embedding(bench);
}

// Products of the model's layers in formats that no run computes in, if the device has them, to
// show the possible gain of TF32 and FP8.

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

/// [rows, columns] codes of E4M3 from 2^-6 to less than 4, of both signs, since products of zeros
/// are faster. They repeat a pattern, since there may be many.
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
  return formatted("{} x {}", rows, columns);
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

/// Cases of a product in each form that the device has.
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
    if (!cuda_products().enqueue_rate(*ops, product, operands)) continue;
    const double flops = 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
    bench.add("matmul", row.name + (" " + name), bytes_of({of_form.a, of_form.b, of_form.y}), flops,
              [=] { cuda_products().enqueue_rate(*ops, product, operands); });
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

// Cross-entropy, the optimizers and other operations that come once in a step.

namespace {

void add_cross_entropy(OpBench& bench) {
  const OpContext* ops = &bench.ops();
  const ModelShape& model = bench.sizes().model;
  const std::int64_t rows = bench.sizes().head_rows;
  const Tensor logits = bench.values("logits", {rows, model.padded_vocab});
  const Tensor labels =
      bench.filled<std::int32_t>("labels", {rows}, [vocab = model.vocab](std::int64_t i) {
        return static_cast<std::int32_t>(i * 7919 % vocab);
      });
  const Tensor weight =
      bench.filled<float>("loss_weight", {rows}, [](std::int64_t) { return 1.0F; });
  const Tensor stats = bench.values("head.stats", {3, rows}, DType::f32);
  const auto stat = [&](std::int64_t index) { return stats.slice(index, index + 1).view({rows}); };
  const CrossEntropyArgs first{.logits = logits,
                               .labels = labels,
                               .valid = model.vocab,
                               .row_max = stat(0),
                               .row_sum = stat(1),
                               .target = stat(2)};
  bench.add("cross_entropy_stats", "", bytes_of({logits}), 0,
            [=] { cross_entropy_stats(*ops, first); });
  const Tensor shards = bench.values("head.shards", {2, 3, rows}, DType::f32);
  const Tensor whole = bench.zeros("head.whole", {3, rows}, DType::f32);
  bench.add("cross_entropy_combine", "", bytes_of({shards, whole}), 0,
            [=] { cross_entropy_combine(*ops, {.shards = shards, .whole = whole}); });
  CrossEntropyArgs second = first;
  second.weight = weight;
  second.state = bench.state("head.state");
  bench.add("cross_entropy_gradient", "", 2 * bytes_of({logits}), 0,
            [=] { cross_entropy_gradient(*ops, second); });
}

/// A function that runs `op` with one call, whose arguments are placed in advance.
template <class Args>
std::function<void()> calling(void (*op)(const OpContext&, const Calls<Args>&),
                              const OpContext* ops, const Args& args) {
  const auto calls = std::make_shared<const Calls<Args>>(std::vector{args}, ops->stream);
  return [=] { op(*ops, *calls); };
}

void add_optimizers(OpBench& bench) {
  const OpContext* ops = &bench.ops();
  const Shape shape{bench.sizes().parameters};
  const Tensor parameter = bench.values("parameter", shape, DType::f32);
  const Tensor gradient = bench.values("gradient", shape, DType::f32);
  const Tensor states[] = {bench.zeros("optimizer.0", shape, DType::f32),
                           bench.zeros("optimizer.1", shape, DType::f32)};
  const DType compute = bench.sizes().compute;
  const Tensor rounded = compute == DType::f32 ? Tensor{} : bench.zeros("rounded", shape, compute);
  const double rounded_bytes = rounded.empty() ? 0 : bytes_of({rounded});
  StepState* state = bench.state("optimizer.state");
  const Tensor factor = bench.filled<float>("factor", {1}, [](std::int64_t) { return 0.5F; });
  for (const UpdateRule rule : update_rules) {
    Update one{.rule = rule,
               .parameter = parameter,
               .gradient = gradient,
               .compute = rounded,
               .constants = {.momentum = 0.9F},
               .decay = true,
               .factor = static_cast<const float*>(factor.data),
               .state = state};
    // All tensors are read and written, except the gradient, which is only read.
    double bytes = bytes_of({gradient}) + 2 * bytes_of({parameter}) + rounded_bytes;
    const int kept = with_rule<float, false>(rule, []<class Rule>() { return Rule::states; });
    for (int i = 0; i < kept; ++i) {
      const auto k = static_cast<std::size_t>(i);
      one.states[k] = states[k];
      bytes += 2 * bytes_of({states[k]});
    }
    bench.add({.kernel = "update",
               .name = std::string(name_of(rule)),
               .bytes = bytes,
               .run = calling(update, ops, one)});
  }
  bench.add("scaled_sum", "", 2 * bytes_of({gradient}) + bytes_of({parameter}), 0, [=] {
    scaled_sum(*ops, {.x = gradient, .y = parameter, .z = gradient, .alpha = 0.5F, .beta = 0.5F});
  });
  const Tensor key = bench.zeros("key", {1}, DType::i32);
  bench.add("largest", "", bytes_of({gradient}), 0,
            [=] { largest(*ops, {.x = gradient, .key = key}); });
  bench.add("square_sum", "", bytes_of({gradient}), 0,
            calling(square_sum, ops, SquareSum{.x = gradient, .result = state->square_sums}));
  const Tensor sums = bench.filled<double>("square_sums", {1, 2}, [](std::int64_t) { return 1.0; });
  StepState* judged = bench.state("verdict.state");
  bench.add("step_verdict", "", bytes_of({sums}), 0,
            [=] { step_verdict(*ops, {.square_sums = sums, .limit = 1, .state = judged}); });
  bench.add("normal_fill", "", bytes_of({parameter}), 0,
            [=] { normal_fill(*ops, {.x = parameter, .seed = 1, .stream = 1}); });
}

}  // namespace

void add_step_cases(OpBench& bench) {
  add_cross_entropy(bench);
  add_optimizers(bench);
}

}  // namespace trainctl
