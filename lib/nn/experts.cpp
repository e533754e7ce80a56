#include "nn/experts.h"

#include "nn/layer.h"
#include "ops/add.h"
#include "ops/cast.h"
#include "ops/gelu.h"
#include "ops/matmul.h"
#include "ops/router.h"
#include "ops/rows.h"
#include "ops/swiglu.h"
#include "plan/tables/local_shape.h"

namespace trainctl {

static_assert(Layer<Experts>);

namespace {

/// One expert's part of a weight [experts, out, in], for the rows that the router sends it.
Weight part_of(const Weight& all, std::int64_t expert) {
  const auto part = [expert](const Tensor& x) {
    if (x.empty()) return x;
    return x.slice(expert, expert + 1).view({x.shape[1], x.shape[2]});
  };
  return {part(all.value), part(all.gradient), all.apart, true};
}

Linear layer_of(const Weight& all, std::int64_t expert) {
  return {.weight = part_of(all, expert), .bias = {}};
}

/// Numbers as rows of one element.
Tensor column(const Tensor& x) { return x.view({x.numel(), 1}); }

}  // namespace

std::int64_t Experts::rows_here(const Saved& saved) const {
  std::int64_t rows = 0;
  for_each(saved, [&](const Share& share) { rows = share.end; });
  return rows;
}

std::int64_t Experts::group_of(const Saved& saved) const {
  return rule.group > 0 ? rule.group : saved.routed.all_logits.shape[0];
}

Tensor Experts::choices(const Saved& saved) const {
  return saved.routed.choices.slice(0, saved.routed.all_logits.shape[0] / group_of(saved));
}

/// Of this rank's tokens among those of all routers.
std::int64_t Experts::first_row(const Saved& saved) const {
  return groups.routers == nullptr ? 0 : groups.routers->rank() * saved.routed.logits.shape[0];
}

/// Of `all` tokens, those of this rank's part of the residual stream.
Tensor Experts::own_rows(const Saved& saved, const Tensor& all) const {
  const std::int64_t rows = saved.x.rows();
  if (all.rows() == rows) return all;
  return all.slice(enter.group->rank() * rows, (enter.group->rank() + 1) * rows);
}

Tensor Experts::wide_input(const Pass& pass, const Saved& saved) const {
  if (saved.x.dtype == DType::f32) return saved.x;
  cast(*pass.ops, {.x = saved.x, .y = saved.routed.wide});
  return saved.routed.wide;
}

/// -> routed.logits, and shared.logit where the shared experts have a gate.
void Experts::score(const Pass& pass, const Saved& saved) const {
  const Tensor wide = wide_input(pass, saved);
  const auto multiply = [&](const Weight& weight, const Tensor& logits) {
    const Tensor own = own_rows(saved, logits);
    matmul(*pass.ops, {.a = wide, .b = weight.value, .c = own, .transpose_b = true});
    if (own.rows() != logits.rows()) enter.forward(pass, own, logits);
  };
  multiply(router, saved.routed.logits);
  if (!shared.router.empty()) multiply(shared.router, saved.shared.logit);
}

/// What the router has decided about this rank's tokens.
void Experts::take_own(const Pass& pass, const Saved& saved) const {
  const RoutedRows& routed = saved.routed;
  const std::int64_t first = first_row(saved);
  const auto take = [&](const Tensor& all, const Tensor& own) {
    pass.ops->stream->copy(own, all.slice(first, first + own.shape[0]));
  };
  take(routed.all_chosen, routed.chosen);
  take(routed.all_weight, routed.weight);
  take(routed.all_slot, routed.slot);
}

void Experts::route(const Pass& pass, const Saved& saved) const {
  const RoutedRows& routed = saved.routed;
  score(pass, saved);
  if (groups.routers != nullptr) {
    groups.routers->all_gather(routed.logits, routed.all_logits, *pass.ops->stream);
  }
  const Group& ep = *groups.ep;
  const Tensor own_counts = routed.counts.slice(ep.rank(), ep.rank() + 1);
  router_forward(*pass.ops, {.logits = routed.all_logits,
                             .order = groups.order,
                             .bias = bias.value,
                             .group = group_of(saved),
                             .capacity = rule.capacity,
                             .by_probability = rule.by_probability,
                             .choice = rule.choice,
                             .chosen = routed.all_chosen,
                             .weight = routed.all_weight,
                             .first = first_row(saved),
                             .count = routed.logits.shape[0],
                             .slot = routed.all_slot,
                             .choices = choices(saved),
                             .counts = own_counts.view({own_counts.numel()})});
  if (groups.routers != nullptr) take_own(pass, saved);
  if (ep.size() > 1) groups.ep->all_gather(own_counts, routed.counts, *pass.ops->stream);
  pass.ops->stream->synchronize();
}

void Experts::widen(const Pass& pass, const Saved& saved, bool gathers) const {
  if (gathers) enter.forward(pass, saved.x, saved.all_x);
  route(pass, saved);
  meet(pass, saved);
  dispatch(pass, saved, routed_x(saved), saved.routed.rows);
  dispatch(pass, saved, column(saved.routed.weight), column(saved.routed.row_weight));
  for_each(saved, [&](const Share& share) {
    if (share.begin == share.end) return;
    const auto own = [&](const Tensor& x) { return x.slice(share.begin, share.end); };
    const Tensor rows = own(saved.routed.rows);
    if (!gate.empty()) layer_of(gate, share.expert).forward(pass, rows, own(saved.gate));
    layer_of(up, share.expert).forward(pass, rows, own(saved.up));
  });
  if (!shared.empty()) shared.widen(pass, saved);
}

void Experts::activate(const Pass& pass, const Saved& saved) const {
  if (!shared.empty()) shared.activate(pass, saved);
  const std::int64_t count = rows_here(saved);
  const Tensor up_rows = saved.up.slice(0, count);
  const Tensor act = saved.act.slice(0, count);
  if (gate.empty()) return gelu_forward(*pass.ops, {.x = up_rows, .y = act});
  swiglu_forward(*pass.ops, {.gate = saved.gate.slice(0, count), .up = up_rows, .y = act});
}

/// act -> routed.scaled
void Experts::scale_act(const Pass& pass, const Saved& saved) const {
  const RoutedRows& routed = saved.routed;
  const std::int64_t count = rows_here(saved);
  scale_rows(*pass.ops, {.x = saved.act.slice(0, count),
                         .weight = routed.row_weight.slice(0, count),
                         .y = routed.scaled.slice(0, count)});
}

/// act -> routed.out
void Experts::project(const Pass& pass, const Saved& saved) const {
  const RoutedRows& routed = saved.routed;
  scale_act(pass, saved);
  for_each(saved, [&](const Share& share) {
    if (share.begin == share.end) return;
    layer_of(down, share.expert)
        .forward(pass, routed.scaled.slice(share.begin, share.end),
                 routed.out.slice(share.begin, share.end));
  });
}

void Experts::forward(const Pass& pass, const Saved& saved) const {
  widen(pass, saved, true);
  if (pass.training && !pass.router_sums.empty()) {
    const Tensor sums = pass.router_sums.slice(layer, layer + 1);
    router_statistics(*pass.ops, {.logits = saved.routed.all_logits,
                                  .chosen = saved.routed.all_chosen,
                                  .choices = choices(saved),
                                  .order = groups.order,
                                  .group = group_of(saved),
                                  .score = rule.choice.score,
                                  .sums = sums.view({sums.numel()})});
  }
  activate(pass, saved);
  project(pass, saved);
  combine(pass, saved, saved.routed.out, groups.by_stream ? saved.y : saved.partial);
  if (!shared.empty()) shared.project(pass, saved, !groups.by_stream);
  if (!groups.by_stream) return leave.forward(pass, saved.partial, saved.y);
  if (shared.empty()) return;
  leave.forward(pass, saved.partial, saved.shared.y);
  add(*pass.ops, {.a = saved.y, .b = saved.shared.y, .y = saved.y});
}

/// g.d_rows -> the gradients of `up` and `gate`, and of the weights of the choices.
void Experts::backward_activation(const Pass& pass, const Saved& saved, const Gradients& g) const {
  const RoutedRows& routed = saved.routed;
  const Tensor& d_act = gate.empty() ? g.dup : g.dgate;  // that of `scaled` and of `act` in turn
  for_each(saved, [&](const Share& share) {
    if (share.begin == share.end) return;
    layer_of(down, share.expert)
        .backward_input(pass, g.d_rows.slice(share.begin, share.end),
                        d_act.slice(share.begin, share.end));
  });
  const std::int64_t count = rows_here(saved);
  const auto used = [count](const Tensor& x) { return x.slice(0, count); };
  scale_rows_backward(*pass.ops, {.x = used(saved.act),
                                  .weight = used(routed.row_weight),
                                  .dy = used(d_act),
                                  .dx = used(d_act),
                                  .d_weight = used(g.d_row_weight)});
  if (gate.empty()) {
    return gelu_backward(*pass.ops, {.x = used(saved.up), .dy = used(g.dup), .dx = used(g.dup)});
  }
  swiglu_backward(*pass.ops, {.gate = used(saved.gate),
                              .up = used(saved.up),
                              .dy = used(g.dgate),
                              .dgate = used(g.dgate),
                              .dup = used(g.dup)});
}

/// -> routed.out: the gradient of `rows`.
void Experts::backward_rows(const Pass& pass, const Saved& saved, const Gradients& g) const {
  for_each(saved, [&](const Share& share) {
    if (share.begin == share.end) return;
    const auto own = [&](const Tensor& x) { return x.slice(share.begin, share.end); };
    const Tensor dx = own(saved.routed.out);
    layer_of(up, share.expert).backward_input(pass, own(g.dup), dx);
    if (gate.empty()) return;
    layer_of(gate, share.expert).backward_input(pass, own(g.dgate), dx, true);
  });
}

/// routed.weight, which has the gradient of the weights -> g.d_logits. Ranks along tp that hold
/// parts of experts have parts of that gradient, but the losses beside the main one are of this
/// rank's own rows.
void Experts::backward_router(const Pass& pass, const Saved& saved, const Gradients& g) const {
  const RoutedRows& routed = saved.routed;
  router_backward(*pass.ops, {.logits = routed.logits,
                              .chosen = routed.chosen,
                              .choice = rule.choice,
                              .d_weight = routed.weight,
                              .d_logits = g.all_d_logits});
  if (!groups.by_stream) enter.backward(pass, g.all_d_logits, g.d_logits);
  if (!shared.router.empty()) enter.backward(pass, g.shared_all_d_logit, g.shared_d_logit);
  const Tensor own = own_rows(saved, routed.logits);
  const bool part = own.rows() != routed.logits.rows();
  const std::int64_t within = part ? enter.group->rank() * own.rows() : 0;
  router_losses(*pass.ops, {.logits = own,
                            .order = groups.order,
                            .first = first_row(saved) + within,
                            .group = group_of(saved),
                            .topk = routed.chosen.shape[1],
                            .score = rule.choice.score,
                            .choices = choices(saved),
                            .balance_factor = rule.balance_factor,
                            .z_factor = rule.z_factor,
                            .d_logits = g.d_logits,
                            .state = pass.state});
}

/// g.dx += the gradient of the input of the router, and of the shared experts' gate.
void Experts::add_router_input(const Pass& pass, const Saved& saved, const Gradients& g) const {
  const bool direct = g.dx.dtype == DType::f32;
  const Tensor& wide = direct ? g.dx : saved.routed.wide;
  matmul(*pass.ops, {.a = g.d_logits, .b = router.value, .c = wide, .accumulate = direct});
  if (!shared.router.empty()) {
    matmul(*pass.ops,
           {.a = g.shared_d_logit, .b = shared.router.value, .c = wide, .accumulate = true});
  }
  if (direct) return;
  cast(*pass.ops, {.x = wide, .y = g.narrow});
  add(*pass.ops, {.a = g.dx, .b = g.narrow, .y = g.dx});
}

void Experts::backward_input(const Pass& pass, const Saved& saved, const Gradients& g) const {
  const bool by_stream = groups.by_stream;
  leave.backward(pass, g.dy, g.all_dy);
  meet(pass, saved);
  dispatch(pass, saved, by_stream ? g.dy : g.all_dy, g.d_rows);
  backward_activation(pass, saved, g);
  backward_rows(pass, saved, g);
  combine(pass, saved, saved.routed.out, by_stream ? g.dx : g.partial_dx);
  combine(pass, saved, column(g.d_row_weight), column(saved.routed.weight));
  if (!shared.empty()) shared.backward_input(pass, saved, g, !by_stream);
  if (!by_stream) {
    enter.backward(pass, g.partial_dx, g.dx);
  } else if (!shared.empty()) {
    enter.backward(pass, g.partial_dx, saved.shared.y);
    add(*pass.ops, {.a = g.dx, .b = saved.shared.y, .y = g.dx});
  }
  backward_router(pass, saved, g);
  add_router_input(pass, saved, g);
}

void Experts::backward_weight(const Pass& pass, const Saved& saved, const Gradients& g) const {
  const RoutedRows& routed = saved.routed;
  scale_act(pass, saved);
  for_each(saved, [&](const Share& share) {
    if (share.begin == share.end) return;
    const auto own = [&](const Tensor& x) { return x.slice(share.begin, share.end); };
    const auto add_to = [&](const Weight& weight, const Tensor& dy, const Tensor& x) {
      layer_of(weight, share.expert).backward_weight(pass, own(dy), own(x));
    };
    add_to(down, g.d_rows, routed.scaled);
    if (!gate.empty()) add_to(gate, g.dgate, routed.rows);
    add_to(up, g.dup, routed.rows);
  });
  const Tensor wide = wide_input(pass, saved);
  add_weight_gradient(pass, router, g.d_logits, wide);
  if (!shared.router.empty()) add_weight_gradient(pass, shared.router, g.shared_d_logit, wide);
  if (shared.empty()) return;
  if (!saved.keeps_x) enter.forward(pass, saved.x, saved.all_x);
  shared.backward_weight(pass, saved, g);
}

namespace {

RouterChoice choice_of(const ModelShape& model) {
  return {.score = model.sigmoid_scores ? RouterScore::sigmoid
                   : model.pre_softmax  ? RouterScore::softmax_all
                                        : RouterScore::softmax_chosen,
          .scaling = static_cast<float>(model.topk_scaling),
          .groups = model.expert_groups,
          .group_topk = model.group_topk};
}

}  // namespace

Experts make_experts(const WeightSource& weights, const ModelShape& model, const std::string& name,
                     std::int64_t layer, const ExpertPlacement& place) {
  const std::string experts = name + ".experts.";
  Experts made;
  made.router = weights(name + ".router.weight");
  if (model.expert_bias) made.bias = weights(name + ".expert_bias");
  made.shared = make_shared_experts(weights, model, name);
  if (model.gated_mlp) made.gate = weights(experts + "gate.weight");
  made.up = weights(experts + "up.weight");
  made.down = weights(experts + "down.weight");
  if (experts_need_all(model, place.groups.by_stream)) {
    made.enter = place.tp.enter();
    made.leave = place.tp.leave();
  }
  made.groups = place.groups;
  made.rule = {.group = model.routing_group,
               .capacity = moe_capacity(model),
               .by_probability = model.overflow == Overflow::probability,
               .choice = choice_of(model),
               .balance_factor = static_cast<float>(model.balance_factor),
               .z_factor = static_cast<float>(model.z_factor)};
  made.layer = layer;
  return made;
}

}  // namespace trainctl
