// Norms, activations and what else works on the rows of a micro-batch.
#include "bench/ops/op_bench.h"
#include "ops/activation.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/rows.h"

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
    const ActivationNames& names = names_of(kind);
    bench.add({"activation_forward", std::string(names.forward), bytes_of({up, act}), 0,
               [=] { activation_forward(*ops, {.kind = kind, .x = up, .y = act}); }});
    bench.add({"activation_backward", std::string(names.backward), bytes_of({up, act, dup}), 0,
               [=] { activation_backward(*ops, {.kind = kind, .x = up, .dy = act, .dx = dup}); }});
    bench.add({"activation_forward", std::string(names.gated_forward), bytes_of({gate, up, act}), 0,
               [=] { activation_forward(*ops, {.kind = kind, .x = gate, .y = act, .up = up}); }});
    bench.add({"activation_backward", std::string(names.gated_backward),
               bytes_of({gate, up, act, dgate, dup}), 0, [=] {
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

}  // namespace trainctl
