#include "nn/mlp.h"

#include "nn/layer.h"
#include "ops/gelu.h"
#include "ops/swiglu.h"

namespace trainctl {

static_assert(Layer<GeluMlp> && Layer<SwigluMlp>);

namespace {

/// act -> y: [T, F] -> [T, H], still to be summed -> [S, H]
void narrow(const Pass& pass, const Linear& down, const Reshard& leave, const MlpSaved& saved) {
  leave.forward_after(pass, saved.partial, saved.y, [&](RowRange rows, const Tensor& to) {
    down.forward(pass, rows.of(saved.act), to);
  });
}

/// The gradient of y -> that of rows of act, by input(RowRange).
template <class Input>
void narrow_backward(const Pass& pass, const Linear& down, const Reshard& leave,
                     const MlpGradients& g, const Input& input) {
  down.backward_part_bias(pass, g.dy, g.all_dy);
  leave.backward_then(pass, g.dy, g.all_dy, input);
}

}  // namespace

void GeluMlp::widen(const Pass& pass, const Saved& saved, bool gathers) const {
  enter.forward(pass, saved.x, saved.all_x, gathers,
                [&](RowRange rows) { up.forward(pass, rows.of(saved.all_x), rows.of(saved.up)); });
}

void GeluMlp::activate(const Pass& pass, const Saved& saved) const {
  gelu_forward(*pass.ops, {.x = saved.up, .y = saved.act});
}

void GeluMlp::forward(const Pass& pass, const Saved& saved) const {
  enter.forward(pass, saved.x, saved.all_x, true, [&](RowRange rows) {
    up.forward_gelu(pass, rows.of(saved.all_x), rows.of(saved.up), rows.of(saved.act));
  });
  narrow(pass, down, leave, saved);
}

void GeluMlp::backward_input(const Pass& pass, const Saved& saved, const Gradients& g) const {
  narrow_backward(pass, down, leave, g, [&](RowRange rows) {
    down.backward_input_gelu(pass, rows.of(g.all_dy), rows.of(saved.up), rows.of(g.dup));
  });
  enter.backward_input(
      pass, gathered_of(saved, g),
      [&](RowRange rows, const Tensor& to) { up.backward_input(pass, rows.of(g.dup), to); },
      [&] { up.backward_parameters(pass, g.dup, saved.all_x); });
}

void GeluMlp::backward_weight(const Pass& pass, const Saved& saved, const Gradients& g) const {
  enter.backward_weight(
      pass, gathered_of(saved, g),
      [&] { down.backward_whole_weight(pass, g.dy, g.all_dy, saved.act); },
      [&] { up.backward_parameters(pass, g.dup, saved.all_x); });
}

void SwigluMlp::widen(const Pass& pass, const Saved& saved, bool gathers) const {
  enter.forward(pass, saved.x, saved.all_x, gathers, [&](RowRange rows) {
    forward_together(pass, rows.of(saved.all_x),
                     {{up, rows.of(saved.up)}, {gate, rows.of(saved.gate)}});
  });
}

void SwigluMlp::activate(const Pass& pass, const Saved& saved) const {
  swiglu_forward(*pass.ops, {.gate = saved.gate, .up = saved.up, .y = saved.act});
}

void SwigluMlp::forward(const Pass& pass, const Saved& saved) const {
  widen(pass, saved, true);
  activate(pass, saved);
  narrow(pass, down, leave, saved);
}

void SwigluMlp::add_first_weights(const Pass& pass, const Saved& saved, const Gradients& g) const {
  backward_parameters_together(pass, saved.all_x, {{up, g.dup}, {gate, g.dgate}});
}

void SwigluMlp::backward_input(const Pass& pass, const Saved& saved, const Gradients& g) const {
  narrow_backward(pass, down, leave, g, [&](RowRange rows) {
    down.backward_input(pass, rows.of(g.all_dy), rows.of(g.dgate));
  });
  swiglu_backward(
      *pass.ops,
      {.gate = saved.gate, .up = saved.up, .dy = g.dgate, .dgate = g.dgate, .dup = g.dup});
  const auto input = [&](RowRange rows, const Tensor& to) {
    gate.backward_input(pass, rows.of(g.dgate), to);
    up.backward_input(pass, rows.of(g.dup), to, true);
  };
  enter.backward_input(pass, gathered_of(saved, g), input,
                       [&] { add_first_weights(pass, saved, g); });
}

void SwigluMlp::backward_weight(const Pass& pass, const Saved& saved, const Gradients& g) const {
  enter.backward_weight(
      pass, gathered_of(saved, g),
      [&] { down.backward_whole_weight(pass, g.dy, g.all_dy, saved.act); },
      [&] { add_first_weights(pass, saved, g); });
}

GeluMlp make_gelu_mlp(const WeightSource& weights, const ModelShape& model, const std::string& name,
                      const TensorParallel& tp, SplitBy split, const Exchanges& exchanges) {
  return {make_linear(weights, name + ".up", model.linear_bias),
          make_row_linear(weights, name + ".down", model.linear_bias, tp, split),
          {tp, exchanges.front()},
          tp.along(exchanges.back())};
}

SwigluMlp make_swiglu_mlp(const WeightSource& weights, const ModelShape& model,
                          const std::string& name, const TensorParallel& tp, SplitBy split,
                          const Exchanges& exchanges) {
  return {make_linear(weights, name + ".gate", model.linear_bias),
          make_linear(weights, name + ".up", model.linear_bias),
          make_row_linear(weights, name + ".down", model.linear_bias, tp, split),
          {tp, exchanges.front()},
          tp.along(exchanges.back())};
}

}  // namespace trainctl
