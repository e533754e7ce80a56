// The operations of a layer of experts: the router, rows to their experts and back, and the
// products of all experts, one after the other.
#include <numeric>

#include "bench/ops/op_bench.h"
#include "device/host_values.h"
#include "nn/experts.h"
#include "ops/matmul.h"
#include "ops/router.h"
#include "ops/rows.h"

namespace trainctl {

namespace {

/// On a rank that holds all experts. The router chooses once.
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
    const RouterStatistics statistics{
        .logits = logits_,
        .chosen = chosen_,
        .choices = choices_,
        .group = rule_.group,
        .choice = rule_.choice,
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
  std::vector<std::int64_t> rows_of_;  // by expert
  std::int64_t count_ = 0;             // of all
};

}  // namespace

void add_expert_cases(OpBench& bench) { ExpertCases(bench).add(); }

}  // namespace trainctl
