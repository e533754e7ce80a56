#include "nn/mlp.h"

#include "base/text.h"
#include "nn/layer.h"
#include "nn/stage.h"
#include "plan/model/mlp.h"

namespace trainctl {

static_assert(Layer<Mlp>);

void activate(const Pass& pass, Activation kind, const GateForm& form,
              const FeedForwardRows<Tensor>& rows) {
  const bool gated = !rows.gate.empty();
  activation_forward(*pass.ops, {.kind = kind,
                                 .x = gated ? rows.gate : rows.up,
                                 .y = rows.act,
                                 .up = gated ? rows.up : Tensor{},
                                 .form = form});
}

void activate_backward(const Pass& pass, Activation kind, const GateForm& form,
                       const FeedForwardRows<Tensor>& rows, const FeedForwardRows<Tensor>& d) {
  const bool gated = !rows.gate.empty();
  const Tensor& d_act = gated ? d.gate : d.up;
  activation_backward(*pass.ops, {.kind = kind,
                                  .x = gated ? rows.gate : rows.up,
                                  .dy = d_act,
                                  .dx = d_act,
                                  .up = gated ? rows.up : Tensor{},
                                  .dup = gated ? d.up : Tensor{},
                                  .form = form});
}

void Mlp::widen(const Pass& pass, const Saved& saved, bool gathers) const {
  gathered_products(pass, enter, saved, gathers, [&](Range rows) {
    if (!gated()) return up.forward(pass, rows.of(saved.all_x), rows.of(saved.up));
    forward_together(pass, rows.of(saved.all_x),
                     {{up, rows.of(saved.up)}, {gate, rows.of(saved.gate)}});
  });
}

void Mlp::activate(const Pass& pass, const Saved& saved) const {
  trainctl::activate(pass, activation, gate_form, saved);
}

void Mlp::forward(const Pass& pass, const Saved& saved) const {
  if (fused()) {
    enter.forward_then(pass, saved.x, saved.all_x, [&](Range rows) {
      up.forward_gelu(pass, rows.of(saved.all_x), rows.of(saved.up), rows.of(saved.act));
    });
  } else {
    widen(pass, saved, true);
    activate(pass, saved);
  }
  // act [T, F] -> partial [T, H], which the ranks sum -> y [S, H].
  leave.forward_after(pass, saved.partial, saved.y, [&](Range rows, const Tensor& to) {
    down.forward(pass, rows.of(saved.act), to);
  });
}

void Mlp::add_first_weights(const Pass& pass, const Saved& saved, const Gradients& g) const {
  if (!gated()) return up.backward_parameters(pass, g.dup, saved.all_x);
  backward_parameters_together(pass, saved.all_x, {{up, g.dup}, {gate, g.dgate}});
}

/// Computes the gradients of up and gate from the gradient of y.
void Mlp::backward_activation(const Pass& pass, const Saved& saved, const Gradients& g) const {
  const Tensor& d_act = gated() ? g.dgate : g.dup;
  down.backward_part_bias(pass, g.dy, g.all_dy);
  leave.backward_then(pass, g.dy, g.all_dy, [&](Range rows) {
    if (fused()) {
      return down.backward_input_gelu(pass, rows.of(g.all_dy), rows.of(saved.up), rows.of(g.dup));
    }
    down.backward_input(pass, rows.of(g.all_dy), rows.of(d_act));
  });
  if (!fused())
    activate_backward(pass, activation, gate_form, saved, {.up = g.dup, .gate = g.dgate});
}

void Mlp::backward_input(const Pass& pass, const Saved& saved, const Gradients& g) const {
  backward_activation(pass, saved, g);
  const auto input = [&](Range rows, const Tensor& to) {
    if (gated()) gate.backward_input(pass, rows.of(g.dgate), to);
    up.backward_input(pass, rows.of(g.dup), to, gated());
  };
  gathered_backward_input(pass, enter, saved, g, input, [&] { add_first_weights(pass, saved, g); });
}

void Mlp::backward_weight(const Pass& pass, const Saved& saved, const Gradients& g) const {
  gathered_backward_weight(
      pass, enter, saved, [&] { down.backward_whole_weight(pass, g.dy, g.all_dy, saved.act); },
      [&] { add_first_weights(pass, saved, g); });
}

GateForm gate_form_of(const ModelShape& model) {
  if (!model.gated_mlp) return {};
  return {static_cast<float>(model.gate_offset), static_cast<float>(model.gate_limit)};
}

Mlp make_mlp(const StageInput& input, std::int64_t layer) {
  const ModelShape& model = input.model;
  const WeightSource& weights = input.weights;
  const TensorParallel& tp = input.tp;
  const BlockSplit split = input.splits.of_unit(static_cast<int>(layer) + 1);
  const Exchanges exchanges = mlp_exchanges(layer_form(model, layer), tp.share(split));
  const std::string name = formatted("layers.{}.mlp", layer);
  return {model.activation,
          gate_form_of(model),
          model.gated_mlp ? make_linear(weights, name + ".gate", model.mlp_bias) : Linear{},
          make_linear(weights, name + ".up", model.mlp_bias),
          make_row_linear(weights, name + ".down", model.mlp_bias, tp, split.feed_forward),
          tp.along(exchanges.front()),
          tp.along(exchanges.back())};
}

}  // namespace trainctl
