// The model's matrix products, forward and for both gradients, and squares of growing size.

#include <cmath>
#include <numeric>

#include "base/text.h"
#include "bench/ops/op_bench.h"
#include "device/slab.h"
#include "nn/experts.h"
#include "ops/attention.h"
#include "ops/matmul.h"
#include "ops/router.h"
#include "ops/rows.h"

namespace trainctl {

AttentionShape causal_shape(std::int64_t sequences, std::int64_t length, std::int64_t heads,
                            std::int64_t kv_heads, std::int64_t head_dim) {
  return {.sequences = sequences,
          .query_length = length,
          .key_length = length,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .query_offset = 0,
          .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
}

AttentionArgs attention_args(const OpBench& bench, const AttentionShape& shape,
                             const std::string& name) {
  const std::int64_t tokens = shape.sequences * shape.query_length;
  const auto queries = [&](const char* what) {
    return bench.values(what + name, {tokens, shape.heads * shape.head_dim});
  };
  const auto keys = [&](const char* what) {
    return bench.values(what + name, {tokens, shape.kv_heads * shape.head_dim});
  };
  return {.shape = shape,
          .q = queries("q"),
          .k = keys("k"),
          .v = keys("v"),
          .first_position = {},
          .dropout = {},
          .out = queries("attention out"),
          .logsumexp = bench.zeros("logsumexp" + name,
                                   {shape.sequences, shape.heads, shape.query_length}, DType::f32),
          .d_out = queries("d out"),
          .dq = queries("dq"),
          .dk = keys("dk"),
          .dv = keys("dv")};
}

void add_attention_cases(OpBench& bench) {
  const OpContext* ops = &bench.ops();
  const ModelShape& model = bench.sizes().model;
  const AttentionForm& form = bench.sizes().attention;
  const AttentionShape shape = causal_shape(bench.sizes().sequences, model.seq_length, form.heads,
                                            form.kv_heads, form.head_dim);
  const double product = attention_product_flops(shape);
  const AttentionArgs args = attention_args(bench, shape, "");
  const double bytes = bytes_of({args.q, args.k, args.v, args.out});
  bench.add("attention_forward", "", bytes, 2 * product, [=] { attention_forward(*ops, args); });
  bench.add("attention_backward", "", 2 * bytes, 5 * product,
            [=] { attention_backward(*ops, args); });
  const auto like_out = [&](const char* name) { return bench.values(name, args.out.shape); };
  const Tensor other = like_out("attention.other");
  const Tensor other_lse = bench.zeros("other_logsumexp", args.logsumexp.shape, DType::f32);
  const Tensor merged = like_out("attention.merged");
  const Tensor merged_lse = bench.zeros("merged_logsumexp", args.logsumexp.shape, DType::f32);
  bench.add("attention_merge", "", bytes_of({merged, merged, other}), 0, [=] {
    attention_merge(*ops, {.shape = shape,
                           .out = merged,
                           .logsumexp = merged_lse,
                           .other = other,
                           .other_logsumexp = other_lse});
  });
  const Tensor sinks = bench.zeros("sinks", {shape.heads}, DType::f32);
  const Tensor d_sinks = bench.zeros("d_sinks", {shape.heads}, DType::f32);
  bench.add("attention_sink_forward", "", 2 * bytes_of({merged}), 0, [=] {
    attention_sink_forward(
        *ops, {.shape = shape, .sinks = sinks, .out = merged, .logsumexp = merged_lse});
  });
  bench.add("attention_sink_backward", "", bytes_of({merged, other}), 0, [=] {
    attention_sink_backward(*ops, {.shape = shape,
                                   .sinks = sinks,
                                   .out = merged,
                                   .logsumexp = merged_lse,
                                   .d_out = other,
                                   .d_sinks = d_sinks});
  });
}

namespace {

constexpr std::int64_t smallest_square = 128;
constexpr std::int64_t largest_square = 16384;
constexpr double max_square_seconds = 0.01;

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
  const std::string widths = formatted("{} x {}", to, from);
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

/// The products of a GELU layer, fused with the operations around them.
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
            [=] { matmul_gelu(*ops, {.product = forward, .other = act}); });
  const Matmul backward{.a = x, .b = down, .c = act};
  bench.add("matmul_gelu_backward", "mlp.down", bytes_of({x, down, act, up}), flops,
            [=] { matmul_gelu_backward(*ops, {.product = backward, .other = up}); });
  const Matmul weight{.a = act, .b = x, .c = dw, .transpose_a = true, .accumulate = true};
  bench.add("matmul_column_sums", "mlp.up", bytes_of({act, x, dw}), flops,
            [=] { matmul_column_sums(*ops, {.product = weight, .other = db}); });
}

/// The products of queries, keys and values as one batch.
void add_batch(OpBench& bench) {
  const OpContext* ops = &bench.ops();
  const ModelShape& model = bench.sizes().model;
  const std::int64_t rows = bench.sizes().tokens;
  const AttentionForm& attention = bench.sizes().attention;
  const Tensor x = bench.values("batch x", {rows, model.hidden});
  std::vector<FusedMatmul> list;
  double bytes = bytes_of({x});
  double flops = 0;
  for (const std::int64_t features : {attention.q(), attention.kv(), attention.kv()}) {
    const std::string name = formatted("batch {}", list.size());
    const Tensor w = bench.values(name + " weight", {features, model.hidden});
    const Tensor y = bench.values(name + " y", {rows, features});
    list.push_back({.product = {.a = x, .b = w, .c = y, .transpose_b = true}});
    bytes += bytes_of({w, y});
    flops += static_cast<double>(2 * rows * model.hidden * features);
  }
  bench.add("matmul_batch", "attention.qkv", bytes, flops,
            [ops, list] { matmul_batch(*ops, list); });
}

void add_squares(OpBench& bench, double rate) {
  std::int64_t largest = smallest_square;
  const auto seconds = [rate](std::int64_t n) {
    const auto width = static_cast<double>(n);
    return 2 * width * width * width / rate;
  };
  while (2 * largest <= largest_square && seconds(2 * largest) <= max_square_seconds) largest *= 2;
  const std::int64_t count = largest * largest;
  const Tensor a = bench.values("square a", {count});
  const Tensor b = bench.values("square b", {count});
  const Tensor c = bench.zeros("square c", {count}, bench.sizes().compute);
  for (std::int64_t n = smallest_square; n <= largest; n *= 2) {
    const auto part = [n](const Tensor& x) { return x.slice(0, n * n).view({n, n}); };
    add_product(bench, formatted("square {}", n),
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

// The operations of a layer of experts: the router, rows to their experts and back, and the
// products of all experts, one after the other.

namespace {

/// Cases on a rank that holds all experts. The router chooses once.
class ExpertCases {
 public:
  explicit ExpertCases(OpBench& bench)
      : bench_(bench), ops_(&bench.ops()), sizes_(bench.sizes()), model_(sizes_.model) {
    rule_ = router_rule(model_);
    if (model_.experts == 1) {
      rule_.group = model_.seq_length;
      rule_.capacity = {};
    }
    logits_ = bench.values("router.logits", {sizes_.tokens, sizes_.experts}, DType::f32);
    d_logits_ = bench.values("router.d_logits", logits_.shape, DType::f32);
    const Shape choices{sizes_.tokens, sizes_.topk};
    chosen_ = bench.zeros("router.chosen", choices, DType::i32);
    weight_ = bench.zeros("router.weight", choices, DType::f32);
    slot_ = bench.zeros("router.slot", choices, DType::i32);
    counts_ = bench.zeros("router.counts", {sizes_.experts}, DType::i64);
    const std::int64_t groups = sizes_.tokens / rule_.group;
    choices_ = bench.zeros(
        "router.choices", {groups * rule_.choice.counted(sizes_.topk), sizes_.experts}, DType::i32);
  }

  void add() {
    add_router_product();
    add_router();
    bench_.cases().back().run();
    ops_->stream->synchronize();
    const HostValues counts(counts_);
    const auto* first = counts.values().as<std::int64_t>();
    rows_of_.assign(first, first + counts_.numel());
    count_ = std::accumulate(rows_of_.begin(), rows_of_.end(), std::int64_t{0});
    add_router_backward();
    add_rows();
    if (model_.experts > 1) add_products();
  }

 private:
  void add_router_product() {
    const Tensor x = bench_.values("router.x", {sizes_.tokens, model_.hidden}, DType::f32);
    const Tensor w = bench_.values("router.w", {sizes_.experts, model_.hidden}, DType::f32);
    const Tensor y = bench_.zeros("router.y", logits_.shape, DType::f32);
    const Matmul product{.a = x, .b = w, .c = y, .transpose_b = true};
    bench_.add("matmul", "router", bytes_of({x, w, y}),
               2.0 * static_cast<double>(x.numel() * sizes_.experts),
               [ops = ops_, product] { matmul(*ops, product); });
  }

  void add_router() {
    const RouterForward args{.logits = logits_,
                             .bias = model_.expert_bias
                                         ? bench_.zeros("router.bias", {sizes_.experts}, DType::f32)
                                         : Tensor{},
                             .group = rule_.group,
                             .capacity = rule_.capacity,
                             .choice = rule_.choice,
                             .chosen = chosen_,
                             .weight = weight_,
                             .slot = slot_,
                             .choices = choices_,
                             .counts = counts_};
    bench_.add("router_forward", "", bytes_of({logits_, chosen_, weight_, slot_}), 0,
               [ops = ops_, args] { router_forward(*ops, args); });
  }

  void add_router_backward() {
    const RouterBackward backward{.logits = logits_,
                                  .chosen = chosen_,
                                  .choice = rule_.choice,
                                  .d_weight = weight_,
                                  .d_logits = d_logits_};
    bench_.add("router_backward", "", bytes_of({logits_, chosen_, weight_, d_logits_}), 0,
               [ops = ops_, backward] { router_backward(*ops, backward); });
    const RouterLosses losses{.logits = logits_,
                              .chosen = chosen_,
                              .group = rule_.group,
                              .choice = rule_.choice,
                              .choices = choices_,
                              .balance_factor = 0.01F,
                              .z_factor = 0.001F,
                              .d_logits = d_logits_,
                              .state = bench_.state("router.state")};
    bench_.add("router_losses", "", bytes_of({logits_, d_logits_, d_logits_}), 0,
               [ops = ops_, losses] { router_losses(*ops, losses); });
    const RouterLosses statistics{
        .logits = logits_,
        .chosen = chosen_,
        .group = rule_.group,
        .choice = rule_.choice,
        .choices = choices_,
        .sums = bench_.zeros("router.sums", {router_sums + sizes_.experts}, DType::f32)};
    bench_.add("router_statistics", "", bytes_of({logits_, chosen_}), 0,
               [ops = ops_, statistics] { router_statistics(*ops, statistics); });
  }

  void add_rows() {
    const std::int64_t most = sizes_.tokens * sizes_.topk;
    const Tensor x = bench_.values("x", {sizes_.tokens, model_.hidden});
    const Tensor y = bench_.values("y", {sizes_.tokens, model_.hidden});
    const Tensor rows = bench_.values("expert.rows", {most, model_.hidden});
    const Tensor used = rows.slice(0, count_);
    bench_.add("spread_rows", "", bytes_of({x, used}), 0, [=, ops = ops_, slot = slot_] {
      spread_rows(*ops, {.x = x, .slot = slot, .y = rows});
    });
    bench_.add("collect_rows", "", bytes_of({used, y}), 0, [=, ops = ops_, slot = slot_] {
      collect_rows(*ops, {.x = rows, .slot = slot, .y = y});
    });
    const Tensor act = bench_.values("expert.act", {count_, sizes_.expert_ffn});
    const Tensor scaled = bench_.values("expert.scaled", act.shape);
    const Tensor by = bench_.values("expert.weight", {count_}, DType::f32);
    const Tensor d_by = bench_.zeros("expert.d_weight", {count_}, DType::f32);
    bench_.add("scale_rows", "", bytes_of({act, by, scaled}), 0,
               [=, ops = ops_] { scale_rows(*ops, {.x = act, .weight = by, .y = scaled}); });
    const Tensor dx = bench_.values("expert.dx", act.shape);
    bench_.add("scale_rows_backward", "", bytes_of({act, by, scaled, dx, d_by}), 0,
               [=, ops = ops_] {
                 scale_rows_backward(
                     *ops, {.x = act, .weight = by, .dy = scaled, .dx = dx, .d_weight = d_by});
               });
    const Tensor bias = bench_.values("expert.bias", {model_.hidden}, DType::f32);
    const Tensor d_bias = bench_.zeros("expert.d_bias", bias.shape, DType::f32);
    bench_.add("bias_rows", "", bytes_of({used, by, bias, used}), 0,
               [=, ops = ops_] { bias_rows(*ops, {.y = used, .weight = by, .bias = bias}); });
    bench_.add(
        "bias_rows_backward", "", bytes_of({used, by, bias, d_bias, d_by}), 0, [=, ops = ops_] {
          bias_rows_backward(
              *ops, {.dy = used, .weight = by, .bias = bias, .d_bias = d_bias, .d_weight = d_by});
        });
  }

  /// One product of each expert's rows.
  template <class One>
  void add_grouped(const char* name, double bytes, const One& one) {
    const double width = static_cast<double>(model_.hidden * sizes_.expert_ffn);
    bench_.add("matmul", name, bytes, 2.0 * static_cast<double>(count_) * width,
               [one, rows_of = rows_of_] {
                 std::int64_t begin = 0;
                 std::int64_t expert = 0;
                 for (const std::int64_t rows : rows_of) {
                   if (rows > 0) one(expert, begin, begin + rows);
                   begin += rows;
                   ++expert;
                 }
               });
  }

  void add_products() {
    const std::int64_t experts = sizes_.experts;
    const std::int64_t ffn = sizes_.expert_ffn;
    const Tensor rows = bench_.values("expert.rows", {sizes_.tokens * sizes_.topk, model_.hidden});
    const Tensor up = bench_.values("expert.act", {count_, ffn});
    const Tensor dx = bench_.values("expert.out", {count_, model_.hidden});
    const Tensor all = bench_.values("experts.w", {experts * ffn, model_.hidden});
    const Tensor d_all = bench_.zeros("experts.dw", all.shape, DType::f32);
    const auto part = [ffn](const Tensor& x, std::int64_t expert) {
      return x.slice(expert * ffn, (expert + 1) * ffn);
    };
    const Tensor used = rows.slice(0, count_);
    const double bytes = bytes_of({used, all, up});
    add_grouped("experts.up forward", bytes, [=, ops = ops_](auto expert, auto begin, auto end) {
      matmul(*ops, {.a = rows.slice(begin, end),
                    .b = part(all, expert),
                    .c = up.slice(begin, end),
                    .transpose_b = true,
                    .varies = true});
    });
    add_grouped("experts.up input gradient", bytes,
                [=, ops = ops_](auto expert, auto begin, auto end) {
                  matmul(*ops, {.a = up.slice(begin, end),
                                .b = part(all, expert),
                                .c = dx.slice(begin, end),
                                .varies = true});
                });
    add_grouped("experts.up weight gradient", bytes_of({used, up, d_all, d_all}),
                [=, ops = ops_](auto expert, auto begin, auto end) {
                  matmul(*ops, {.a = up.slice(begin, end),
                                .b = rows.slice(begin, end),
                                .c = part(d_all, expert),
                                .transpose_a = true,
                                .accumulate = true,
                                .varies = true});
                });
  }

  OpBench& bench_;
  const OpContext* ops_;
  const OpSizes& sizes_;
  const ModelShape& model_;
  RouterRule rule_;
  Tensor logits_, d_logits_, chosen_, weight_, slot_, counts_, choices_;
  std::vector<std::int64_t> rows_of_;  // rows of each expert
  std::int64_t count_ = 0;             // rows of all experts
};

}  // namespace

void add_expert_cases(OpBench& bench) { ExpertCases(bench).add(); }

}  // namespace trainctl
