#include "nn/mlp.h"

#include "nn/layer.h"
#include "ops/gelu.h"
#include "ops/swiglu.h"

namespace trainctl {

static_assert(Layer<GeluMlp> && Layer<SwigluMlp>);

void GeluMlp::widen(const Pass& pass, const Saved& saved) const {
  up.forward(pass, saved.all_x, saved.up);  // -> [T, F]
}

void GeluMlp::activate(const Pass& pass, const Saved& saved) const {
  gelu_forward(*pass.ops, {.x = saved.up, .y = saved.act});
}

void GeluMlp::forward(const Pass& pass, const Saved& saved) const {
  enter.forward(pass, saved.x, saved.all_x);  // [S, H] -> [T, H]
  widen(pass, saved);
  activate(pass, saved);
  down.forward(pass, saved.act, saved.partial);  // -> [T, H], still to be summed
  leave.forward(pass, saved.partial, saved.y);   // -> [S, H]
}

void GeluMlp::backward_input(const Pass& pass, const Saved& saved, const Gradients& g) const {
  down.backward_bias(pass, g.dy);
  leave.backward(pass, g.dy, g.all_dy);
  down.backward_input(pass, g.all_dy, g.dup);  // that of act, turned into that of up in place
  gelu_backward(*pass.ops, {.x = saved.up, .dy = g.dup, .dx = g.dup});
  up.backward_bias(pass, g.dup);
  up.backward_input(pass, g.dup, g.partial_dx);
  enter.backward(pass, g.partial_dx, g.dx);
}

void GeluMlp::backward_weight(const Pass& pass, const Saved& saved, const Gradients& g) const {
  down.backward_weight(pass, g.all_dy, saved.act);
  if (!saved.keeps_x) enter.forward(pass, saved.x, saved.all_x);
  up.backward_weight(pass, g.dup, saved.all_x);
}

void SwigluMlp::widen(const Pass& pass, const Saved& saved) const {
  gate.forward(pass, saved.all_x, saved.gate);
  up.forward(pass, saved.all_x, saved.up);
}

void SwigluMlp::activate(const Pass& pass, const Saved& saved) const {
  swiglu_forward(*pass.ops, {.gate = saved.gate, .up = saved.up, .y = saved.act});
}

void SwigluMlp::forward(const Pass& pass, const Saved& saved) const {
  enter.forward(pass, saved.x, saved.all_x);
  widen(pass, saved);
  activate(pass, saved);
  down.forward(pass, saved.act, saved.partial);
  leave.forward(pass, saved.partial, saved.y);
}

void SwigluMlp::backward_input(const Pass& pass, const Saved& saved, const Gradients& g) const {
  down.backward_bias(pass, g.dy);
  leave.backward(pass, g.dy, g.all_dy);
  down.backward_input(pass, g.all_dy, g.dgate);
  swiglu_backward(
      *pass.ops,
      {.gate = saved.gate, .up = saved.up, .dy = g.dgate, .dgate = g.dgate, .dup = g.dup});
  gate.backward_bias(pass, g.dgate);
  up.backward_bias(pass, g.dup);
  gate.backward_input(pass, g.dgate, g.partial_dx);
  up.backward_input(pass, g.dup, g.partial_dx, true);
  enter.backward(pass, g.partial_dx, g.dx);
}

void SwigluMlp::backward_weight(const Pass& pass, const Saved& saved, const Gradients& g) const {
  down.backward_weight(pass, g.all_dy, saved.act);
  if (!saved.keeps_x) enter.forward(pass, saved.x, saved.all_x);
  gate.backward_weight(pass, g.dgate, saved.all_x);
  up.backward_weight(pass, g.dup, saved.all_x);
}

GeluMlp make_gelu_mlp(const WeightSource& weights, const ModelShape& model, const std::string& name,
                      const TensorParallel& tp) {
  return {make_linear(weights, name + ".up", model.linear_bias),
          make_row_linear(weights, name + ".down", model.linear_bias, tp), tp.enter(), tp.leave()};
}

SwigluMlp make_swiglu_mlp(const WeightSource& weights, const ModelShape& model,
                          const std::string& name, const TensorParallel& tp) {
  return {make_linear(weights, name + ".gate", model.linear_bias),
          make_linear(weights, name + ".up", model.linear_bias),
          make_row_linear(weights, name + ".down", model.linear_bias, tp), tp.enter(), tp.leave()};
}

}  // namespace trainctl
