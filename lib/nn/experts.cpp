#include "nn/experts.h"

#include <array>

#include "base/text.h"
#include "nn/layer.h"
#include "nn/stage.h"
#include "ops/activation.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/rows.h"
#include "plan/model/experts.h"

namespace trainctl {

RouterRule router_rule(const ModelShape& model) {
  return {.group = model.routing_group,
          .capacity = {model.capacity_group, model.capacity_factor, model.overflow},
          .choice = {.sigmoid = model.sigmoid_scores,
                     .weighting = model.weights,
                     .rounds = model.rounds,
                     .free_counts = model.free_counts,
                     .sums_logits = !model.pre_softmax,
                     .scaling = static_cast<float>(model.topk_scaling),
                     .groups = model.expert_groups,
                     .group_topk = model.group_topk},
          .balance_factor = static_cast<float>(model.balance_factor),
          .z_factor = static_cast<float>(model.z_factor)};
}

namespace {

/// x as a vector: one number per token.
Tensor numbers(const Tensor& x) { return x.view({x.numel()}); }

}  // namespace

void SharedExperts::widen(const Pass& pass, const MlpSaved& saved) const {
  forward_together(pass, saved.all_x,
                   {{Linear{up, {}}, saved.shared.up}, {Linear{gate, {}}, saved.shared.gate}});
}

void SharedExperts::activate(const Pass& pass, const MlpSaved& saved) const {
  trainctl::activate(pass, activation, gate_form, saved.shared);
}

Tensor SharedExperts::scaled(const Pass& pass, const MlpSaved& saved) const {
  const SharedRows& rows = saved.shared;
  if (router.empty()) return rows.act;
  scale_rows(*pass.ops,
             {.x = rows.act, .weight = numbers(rows.logit), .y = rows.scaled, .sigmoid = true});
  return rows.scaled;
}

void SharedExperts::project(const Pass& pass, const MlpSaved& saved, bool accumulate) const {
  matmul(*pass.ops, {.a = scaled(pass, saved),
                     .b = down.value,
                     .c = saved.partial,
                     .transpose_b = true,
                     .accumulate = accumulate});
}

void SharedExperts::backward_input(const Pass& pass, const MlpSaved& saved, const MlpGradients& g,
                                   bool accumulate) const {
  const SharedRows& rows = saved.shared;
  const Tensor& d_act = gate.empty() ? g.shared_dup : g.shared_dgate;  // of scaled, then of act
  Linear{down, {}}.backward_input(pass, g.all_dy, d_act);
  if (!router.empty()) {
    scale_rows_backward(*pass.ops, {.x = rows.act,
                                    .weight = numbers(rows.logit),
                                    .dy = d_act,
                                    .dx = d_act,
                                    .d_weight = numbers(g.shared_all_d_logit),
                                    .sigmoid = true});
  }
  activate_backward(pass, activation, gate_form, rows,
                    {.up = g.shared_dup, .gate = g.shared_dgate});
  if (!gate.empty()) {
    Linear{gate, {}}.backward_input(pass, g.shared_dgate, g.partial_dx, accumulate);
    accumulate = true;
  }
  Linear{up, {}}.backward_input(pass, g.shared_dup, g.partial_dx, accumulate);
}

void SharedExperts::backward_weight(const Pass& pass, const MlpSaved& saved,
                                    const MlpGradients& g) const {
  add_weight_gradient(pass, down, g.all_dy, scaled(pass, saved));
  backward_parameters_together(
      pass, saved.all_x, {{Linear{up, {}}, g.shared_dup}, {Linear{gate, {}}, g.shared_dgate}});
}

SharedExperts make_shared_experts(const WeightSource& weights, const ModelShape& model,
                                  const std::string& name) {
  SharedExperts made;
  if (model.shared_ffn == 0) return made;
  if (model.shared_gate) made.router = weights(name + ".shared_gate.weight");
  made.activation = model.activation;
  made.gate_form = gate_form_of(model);
  if (model.gated_mlp) made.gate = weights(name + ".shared.gate.weight");
  made.up = weights(name + ".shared.up.weight");
  made.down = weights(name + ".shared.down.weight");
  return made;
}

static_assert(Layer<Experts>);

namespace {

/// x as a matrix with one column.
Tensor column(const Tensor& x) { return x.view({x.numel(), 1}); }

FeedForwardRows<Tensor> part_of(const FeedForwardRows<Tensor>& all, const Range& range) {
  return {.up = range.of(all.up), .gate = range.of(all.gate), .act = range.of(all.act)};
}

/// The tensors sent to the experts: the tokens, and the weights of their choices.
std::array<ExchangedTensor, 2> to_experts(const Tensor& x, const RoutedRows& routed) {
  return {ExchangedTensor{x, routed.rows}, {column(routed.weight), column(routed.row_weight)}};
}

}  // namespace

RowOrder Experts::order_of(const Saved& saved) const {
  RowOrder order = groups.order;
  order.tokens.seq_length = saved.routed.all_logits.shape[0] / order.sequences;
  return order;
}

/// Tokens of a routing or capacity group, where `size` is given for full-length sequences.
std::int64_t Experts::group_of(const Saved& saved, std::int64_t size) const {
  if (size == 0) return saved.routed.all_logits.shape[0];
  return group_at_length(size, groups.order.tokens.seq_length, order_of(saved).tokens.seq_length);
}

Tensor Experts::choices(const Saved& saved) const {
  const std::int64_t count = saved.routed.all_logits.shape[0] / group_of(saved, rule.group);
  return saved.routed.choices.slice(0, count * rule.choice.counted(saved.routed.chosen.shape[1]));
}

/// The index of this rank's first token among the tokens of all ranks of groups.routers.
std::int64_t Experts::first_row(const Saved& saved) const {
  return groups.routers == nullptr ? 0 : groups.routers->rank() * saved.routed.logits.shape[0];
}

/// The rows of `all` (one row per token) for this rank's part of the residual stream.
Tensor Experts::local_rows(const Saved& saved, const Tensor& all) const {
  return all.rows() == saved.x.rows() ? all : trainctl::local_rows(*enter.group, all);
}

Tensor Experts::wide_input(const Pass& pass, const Saved& saved) const {
  if (saved.x.dtype == DType::f32) return saved.x;
  cast(*pass.ops, {.x = saved.x, .y = saved.routed.wide});
  return saved.routed.wide;
}

/// Writes the routers' logits: routed.logits, and shared.logit if the shared experts have a gate.
void Experts::score(const Pass& pass, const Saved& saved) const {
  const Tensor wide = wide_input(pass, saved);
  const auto multiply = [&](const Weight& weight, const Tensor& logits) {
    const Tensor own = local_rows(saved, logits);
    matmul(*pass.ops, {.a = wide, .b = weight.value, .c = own, .transpose_b = true});
    if (own.rows() != logits.rows()) enter.forward(pass, own, logits);
  };
  multiply(router, saved.routed.logits);
  if (!shared.router.empty()) multiply(shared.router, saved.shared.logit);
}

/// Copies the router's decisions about this rank's tokens.
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
  if (pass.routed && pass.training) {
    const BatchTensors& tokens = groups.by_stream ? pass.stream : pass.batch;
    pass.routed(layer, tokens.global_token, routed.logits);
  }
  if (groups.routers != nullptr) {
    groups.routers->all_gather(routed.logits, routed.all_logits, *pass.ops->stream);
  }
  const ExpertExchange parts = exchange(pass, saved);
  const Range sent = parts.sent();
  const Tensor local_counts = parts.local_counts();
  RouterCapacity capacity = rule.capacity;
  capacity.group = group_of(saved, capacity.group);
  router_forward(*pass.ops, {.logits = routed.all_logits,
                             .real = pass.batch.real,
                             .order = order_of(saved),
                             .bias = bias.value,
                             .group = group_of(saved, rule.group),
                             .capacity = capacity,
                             .choice = rule.choice,
                             .chosen = routed.all_chosen,
                             .weight = routed.all_weight,
                             .first = first_row(saved) + sent.begin,
                             .count = sent.count(),
                             .chunks = parts.all().end,
                             .slot = routed.all_slot,
                             .choices = choices(saved),
                             .counts = local_counts.view({local_counts.numel()})});
  if (groups.routers != nullptr) take_own(pass, saved);
  parts.share_counts();
}

void Experts::first_products(const Pass& pass, const Saved& saved, const Range& chunks) const {
  exchange(pass, saved).for_each(chunks, [&](std::int64_t expert, const Range& rows) {
    forward_together(
        pass, rows.of(saved.routed.rows),
        {{layer_of(up, expert), rows.of(saved.up)}, {layer_of(gate, expert), rows.of(saved.gate)}});
  });
}

void Experts::widen(const Pass& pass, const Saved& saved, bool gathers, ExchangePhase leg) const {
  if (runs(leg, ExchangePhase::out)) {
    if (gathers) enter.forward(pass, saved.x, saved.all_x);
    route(pass, saved);
  }
  exchange_backward(pass, saved)
      .run(
          leg, to_experts(routed_x(saved), saved.routed), {},
          [&] {
            if (!shared.empty()) shared.widen(pass, saved);
          },
          [&](const Range& chunks) { first_products(pass, saved, chunks); });
}

void Experts::activate(const Pass& pass, const Saved& saved, const Range& chunks) const {
  exchange(pass, saved).for_ranges(chunks, [&](const Range& range) {
    trainctl::activate(pass, activation, gate_form, part_of(saved, range));
  });
}

void Experts::activate(const Pass& pass, const Saved& saved) const {
  if (!shared.empty()) shared.activate(pass, saved);
  activate(pass, saved, exchange(pass, saved).all());
}

/// Writes routed.scaled: act times the weight of each row's choice.
void Experts::scale_act(const Pass& pass, const Saved& saved, const Range& chunks) const {
  const RoutedRows& routed = saved.routed;
  exchange(pass, saved).for_ranges(chunks, [&](const Range& range) {
    scale_rows(*pass.ops, {.x = range.of(saved.act),
                           .weight = range.of(routed.row_weight),
                           .y = range.of(routed.scaled)});
  });
}

/// Writes routed.out, the experts' outputs, from act.
void Experts::project(const Pass& pass, const Saved& saved, const Range& chunks) const {
  const RoutedRows& routed = saved.routed;
  scale_act(pass, saved, chunks);
  exchange(pass, saved).for_each(chunks, [&](std::int64_t expert, const Range& rows) {
    const Linear last = layer_of(down, expert);
    const Tensor out = rows.of(routed.out);
    last.forward(pass, rows.of(routed.scaled), out);
    if (last.bias.empty() || !groups.adds_bias) return;
    bias_rows(*pass.ops, {.y = out, .weight = rows.of(routed.row_weight), .bias = last.bias.value});
  });
}

/// Adds this layer's routing statistics to the statistics of the step.
void Experts::add_statistics(const Pass& pass, const Saved& saved) const {
  if (!pass.training || pass.router_sums.empty()) return;
  const Tensor sums = pass.router_sums.slice(layer, layer + 1);
  router_statistics(*pass.ops, {.logits = saved.routed.all_logits,
                                .chosen = saved.routed.all_chosen,
                                .real = pass.batch.real,
                                .order = order_of(saved),
                                .group = group_of(saved, rule.group),
                                .choice = rule.choice,
                                .choices = choices(saved),
                                .sums = sums.view({sums.numel()})});
}

void Experts::forward(const Pass& pass, const Saved& saved, ExchangePhase leg) const {
  if (runs(leg, ExchangePhase::out)) {
    enter.forward(pass, saved.x, saved.all_x);
    route(pass, saved);
  }
  const ExchangedTensor back[] = {{groups.by_stream ? saved.y : saved.partial, saved.routed.out}};
  exchange(pass, saved)
      .run(
          leg, to_experts(routed_x(saved), saved.routed), back,
          [&] {
            add_statistics(pass, saved);
            if (shared.empty()) return;
            shared.widen(pass, saved);
            shared.activate(pass, saved);
          },
          [&](const Range& chunks) {
            first_products(pass, saved, chunks);
            activate(pass, saved, chunks);
            project(pass, saved, chunks);
          });
  if (!runs(leg, ExchangePhase::home)) return;
  if (!shared.empty()) shared.project(pass, saved, !groups.by_stream);
  if (!groups.by_stream) return leave.forward(pass, saved.partial, saved.y);
  if (shared.empty()) return;
  leave.forward(pass, saved.partial, saved.shared.y);
  add(*pass.ops, {.a = saved.y, .b = saved.shared.y, .y = saved.y});
}

/// Computes the gradients of `up`, `gate` and the choices' weights from g.d_rows.
void Experts::backward_activation(const Pass& pass, const Saved& saved, const Gradients& g,
                                  const Range& chunks) const {
  const RoutedRows& routed = saved.routed;
  const Tensor& d_act = gated() ? g.dgate : g.dup;  // gradient of `scaled`, then of `act`
  const ExpertExchange parts = exchange(pass, saved);
  parts.for_each(chunks, [&](std::int64_t expert, const Range& rows) {
    layer_of(down, expert).backward_input(pass, rows.of(g.d_rows), rows.of(d_act));
  });
  parts.for_ranges(chunks, [&](const Range& range) {
    const Tensor d_part = range.of(d_act);
    scale_rows_backward(*pass.ops, {.x = range.of(saved.act),
                                    .weight = range.of(routed.row_weight),
                                    .dy = d_part,
                                    .dx = d_part,
                                    .d_weight = range.of(g.d_row_weight)});
    activate_backward(pass, activation, gate_form, part_of(saved, range),
                      {.up = range.of(g.dup), .gate = range.of(g.dgate)});
  });
  if (!up.bias.empty()) add_biases(pass, saved, g, chunks);
}

/// Adds the gradients of the biases, and the share of the bias of `down` in d_row_weight.
void Experts::add_biases(const Pass& pass, const Saved& saved, const Gradients& g,
                         const Range& chunks) const {
  exchange(pass, saved).for_each(chunks, [&](std::int64_t expert, const Range& rows) {
    if (gated()) layer_of(gate, expert).backward_bias(pass, rows.of(g.dgate));
    layer_of(up, expert).backward_bias(pass, rows.of(g.dup));
    const Weight of_down = layer_of(down, expert).bias;
    bias_rows_backward(*pass.ops,
                       {.dy = rows.of(g.d_rows),
                        .weight = rows.of(saved.routed.row_weight),
                        .bias = of_down.value,
                        .d_bias = of_down.gradient,
                        .d_weight = groups.adds_bias ? rows.of(g.d_row_weight) : Tensor{}});
  });
}

/// Writes the gradient of `rows` to routed.out.
void Experts::backward_rows(const Pass& pass, const Saved& saved, const Gradients& g,
                            const Range& chunks) const {
  exchange(pass, saved).for_each(chunks, [&](std::int64_t expert, const Range& rows) {
    const Tensor dx = rows.of(saved.routed.out);
    layer_of(up, expert).backward_input(pass, rows.of(g.dup), dx);
    if (!gated()) return;
    layer_of(gate, expert).backward_input(pass, rows.of(g.dgate), dx, true);
  });
}

/// Computes g.d_logits from the gradient of the choices' weights, which routed.weight holds here.
/// Ranks along tp with parts of experts have partial sums of that gradient, but add the router's
/// own losses for their own rows only.
void Experts::backward_router(const Pass& pass, const Saved& saved, const Gradients& g) const {
  const RoutedRows& routed = saved.routed;
  router_backward(*pass.ops, {.logits = routed.logits,
                              .chosen = routed.chosen,
                              .choice = rule.choice,
                              .d_weight = routed.weight,
                              .d_logits = g.all_d_logits});
  if (!groups.by_stream) enter.backward(pass, g.all_d_logits, g.d_logits);
  if (!shared.router.empty()) enter.backward(pass, g.shared_all_d_logit, g.shared_d_logit);
  const Tensor own = local_rows(saved, routed.logits);
  const bool part = own.rows() != routed.logits.rows();
  const std::int64_t within = part ? enter.group->rank() * own.rows() : 0;
  router_losses(*pass.ops, {.logits = own,
                            .chosen = local_rows(saved, routed.chosen),
                            .real = pass.batch.real,
                            .order = order_of(saved),
                            .first = first_row(saved) + within,
                            .group = group_of(saved, rule.group),
                            .choice = rule.choice,
                            .choices = choices(saved),
                            .balance_factor = rule.balance_factor,
                            .z_factor = rule.z_factor,
                            .d_logits = g.d_logits,
                            .state = pass.state});
  if (pass.routed_back) pass.routed_back(layer, pass.stream.global_token, g.d_logits);
}

/// Adds the gradients of the inputs of the router and of the shared experts' gate to g.dx.
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

void Experts::backward_input(const Pass& pass, const Saved& saved, const Gradients& g,
                             ExchangePhase leg) const {
  const bool by_stream = groups.by_stream;
  if (runs(leg, ExchangePhase::out)) leave.backward(pass, g.dy, g.all_dy);
  const ExchangedTensor there[] = {{by_stream ? g.dy : g.all_dy, g.d_rows}};
  const ExchangedTensor back[] = {{by_stream ? g.dx : g.partial_dx, saved.routed.out},
                                  {column(saved.routed.weight), column(g.d_row_weight)}};
  exchange_backward(pass, saved)
      .run(
          leg, there, back, [] {},
          [&](const Range& chunks) {
            backward_activation(pass, saved, g, chunks);
            backward_rows(pass, saved, g, chunks);
          });
  if (!runs(leg, ExchangePhase::home)) return;
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
  const ExpertExchange parts = exchange(pass, saved);
  scale_act(pass, saved, parts.all());
  parts.for_each(parts.all(), [&](std::int64_t expert, const Range& rows) {
    const auto own = [&](const Linear& all) { return Linear{layer_of(all, expert).weight, {}}; };
    own(down).backward_weight(pass, rows.of(g.d_rows), rows.of(routed.scaled));
    backward_parameters_together(pass, rows.of(routed.rows),
                                 {{own(up), rows.of(g.dup)}, {own(gate), rows.of(g.dgate)}});
  });
  const Tensor wide = wide_input(pass, saved);
  add_weight_gradient(pass, router, g.d_logits, wide);
  if (!shared.router.empty()) add_weight_gradient(pass, shared.router, g.shared_d_logit, wide);
  if (shared.empty()) return;
  if (!saved.keeps_x) enter.forward(pass, saved.x, saved.all_x);
  shared.backward_weight(pass, saved, g);
}

Experts make_experts(const StageInput& input, std::int64_t layer) {
  const ModelShape& model = input.model;
  const WeightSource& weights = input.weights;
  const std::string name = formatted("layers.{}.moe", layer);
  const std::string experts = name + ".experts.";
  Experts made;
  made.router = weights(name + ".router.weight");
  if (model.expert_bias) made.bias = weights(name + ".expert_bias");
  made.shared = make_shared_experts(weights, model, name);
  made.activation = model.activation;
  made.gate_form = gate_form_of(model);
  const bool biases = model.mlp_bias;
  if (model.gated_mlp) made.gate = make_linear(weights, experts + "gate", biases);
  made.up = make_linear(weights, experts + "up", biases);
  made.down = make_linear(weights, experts + "down", biases);
  made.down.adds_bias = false;  // added by bias_rows instead
  LayerShare share = input.tp.share({});
  share.exchange.by_stream = input.experts.by_stream;
  const Exchanges exchanges = expert_exchanges(layer_form(model, layer), share);
  if (!exchanges.empty()) {
    made.enter = input.tp.along(exchanges.front());
    made.leave = input.tp.along(exchanges.back());
  }
  made.groups = input.experts;
  made.rule = router_rule(model);
  made.layer = layer;
  return made;
}

}  // namespace trainctl
