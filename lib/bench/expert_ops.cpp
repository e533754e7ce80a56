#include "bench/expert_ops.h"

#include <numeric>

#include "ops/cast.h"
#include "ops/matmul.h"
#include "ops/router.h"
#include "ops/rows.h"

namespace trainctl {

namespace {

/// The tensors of one layer on a rank that holds all experts.
class ExpertCases {
 public:
  ExpertCases(const OpTensors& of, std::int64_t layer)
      : of_(of), prefix_("layers." + std::to_string(layer) + ".") {
    const ModelShape& model = of.plan.model;
    x_ = of.row(prefix_ + "norm2");
    wide_ = x_;
    if (x_.dtype != DType::f32) {
      wide_ = of.row("moe.wide");
      cast(of.ops, {.x = x_, .y = wide_});
    }
    choice_ = {.score = model.sigmoid_scores ? RouterScore::sigmoid
                        : model.pre_softmax  ? RouterScore::softmax_all
                                             : RouterScore::softmax_chosen,
               .scaling = static_cast<float>(model.topk_scaling),
               .groups = model.expert_groups,
               .group_topk = model.group_topk};
  }

  void add() {
    add_router();
    of_.cases.back().run();
    const Tensor counts = moe("counts");
    count_ = std::accumulate(counts.as<std::int64_t>(), counts.as<std::int64_t>() + counts.numel(),
                             std::int64_t{0});
    add_router_backward();
    add_rows();
    add_products();
  }

 private:
  Tensor moe(const char* name) const { return of_.row(prefix_ + "moe." + name); }
  Weight weight(const std::string& name) const {
    return of_.parameters.weight(prefix_ + "moe." + name);
  }
  Tensor used(const Tensor& x) const { return x.slice(0, count_); }

  void add_router() {
    const Weight router = weight("router.weight");
    const Tensor logits = moe("logits");
    const Matmul product{.a = wide_, .b = router.value, .c = logits, .transpose_b = true};
    matmul(of_.ops, product);
    of_.add("matmul router", bytes_of({wide_, router.value, logits}),
            2.0 * static_cast<double>(wide_.numel() * logits.shape[1]),
            [ops = &of_.ops, product] { matmul(*ops, product); });
    const Tensor counts = moe("counts");
    const RouterForward args{
        .logits = logits,
        .bias = of_.plan.model.expert_bias ? weight("expert_bias").value : Tensor{},
        .group = of_.plan.model.routing_group,
        .capacity = of_.plan.local.capacity,
        .by_probability = of_.plan.model.overflow == Overflow::probability,
        .choice = choice_,
        .chosen = moe("chosen"),
        .weight = of_.row("moe.weight"),
        .slot = moe("slot"),
        .choices = moe("choices"),
        .counts = counts.view({counts.numel()})};
    of_.add("router_forward", bytes_of({logits, args.chosen, args.weight, args.slot}), 0,
            [ops = &of_.ops, args] { router_forward(*ops, args); });
  }

  void add_router_backward() {
    const Tensor logits = moe("logits");
    const Tensor d_logits = moe("d_logits");
    const RouterBackward args{.logits = logits,
                              .chosen = moe("chosen"),
                              .choice = choice_,
                              .d_weight = of_.row("moe.weight"),
                              .d_logits = d_logits};
    of_.add("router_backward", bytes_of({logits, args.chosen, args.d_weight, d_logits}), 0,
            [ops = &of_.ops, args] { router_backward(*ops, args); });
  }

  void add_rows() {
    const Tensor rows = moe("rows");
    const Tensor slot = moe("slot");
    const Tensor y = of_.row("branch");
    of_.add("spread_rows", bytes_of({x_, used(rows)}), 0,
            [=, ops = &of_.ops, x = x_] { spread_rows(*ops, {.x = x, .slot = slot, .y = rows}); });
    of_.add("collect_rows", bytes_of({used(rows), y}), 0,
            [=, ops = &of_.ops] { collect_rows(*ops, {.x = rows, .slot = slot, .y = y}); });
    const Tensor act = used(moe("act"));
    const Tensor scaled = used(of_.row("moe.scaled"));
    const Tensor by = used(moe("row_weight"));
    of_.add("scale_rows", bytes_of({act, by, scaled}), 0,
            [=, ops = &of_.ops] { scale_rows(*ops, {.x = act, .weight = by, .y = scaled}); });
    of_.cases[of_.cases.size() - 3].run();  // rows, for the products
  }

  /// One product of each expert's rows.
  void add_grouped(const char* name, const Tensor& inputs, const Tensor& outputs,
                   const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& one) {
    const Tensor all = weight("experts.up.weight").value;
    const Tensor counts = moe("counts");
    const double flops = 2.0 * static_cast<double>(count_ * all.shape[1] * all.shape[2]);
    of_.add(name, bytes_of({used(inputs), all, used(outputs)}), flops, [=] {
      std::int64_t begin = 0;
      for (std::int64_t expert = 0; expert < counts.numel(); ++expert) {
        const std::int64_t end = begin + counts.as<std::int64_t>()[expert];
        if (begin < end) one(expert, begin, end);
        begin = end;
      }
    });
  }

  void add_products() {
    const Weight all = weight("experts.up.weight");
    const Tensor rows = moe("rows");
    const Tensor up = moe("up");
    const Tensor dx = of_.row("moe.out");
    const auto part = [](const Tensor& x, std::int64_t expert) {
      return x.slice(expert, expert + 1).view({x.shape[1], x.shape[2]});
    };
    const OpContext* ops = &of_.ops;
    add_grouped("experts.up forward", rows, up, [=](auto expert, auto begin, auto end) {
      matmul(*ops, {.a = rows.slice(begin, end),
                    .b = part(all.value, expert),
                    .c = up.slice(begin, end),
                    .transpose_b = true,
                    .varies = true});
    });
    add_grouped("experts.up input gradient", up, dx, [=](auto expert, auto begin, auto end) {
      matmul(*ops, {.a = up.slice(begin, end),
                    .b = part(all.value, expert),
                    .c = dx.slice(begin, end),
                    .varies = true});
    });
    add_grouped("experts.up weight gradient", rows, up, [=](auto expert, auto begin, auto end) {
      matmul(*ops, {.a = up.slice(begin, end),
                    .b = rows.slice(begin, end),
                    .c = part(all.gradient, expert),
                    .transpose_a = true,
                    .accumulate = true,
                    .varies = true});
    });
  }

  const OpTensors& of_;
  std::string prefix_;
  Tensor x_, wide_;
  RouterChoice choice_;
  std::int64_t count_ = 0;  // rows of all experts
};

}  // namespace

void add_expert_cases(const OpTensors& of, std::int64_t layer) { ExpertCases(of, layer).add(); }

}  // namespace trainctl
