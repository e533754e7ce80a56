#include "nn/mlp.h"

#include "nn/layer.h"
#include "ops/gelu.h"
#include "ops/swiglu.h"

namespace trainctl {

static_assert(Layer<GeluMlp> && Layer<SwigluMlp>);

void GeluMlp::forward(const Pass& pass, const Saved& saved) const {
  up.forward(pass, saved.x, saved.up);
  gelu_forward(*pass.ops, {.x = saved.up, .y = saved.act});
  down.forward(pass, saved.act, saved.y);
}

void GeluMlp::backward_input(const Pass& pass, const Saved& saved, const Gradients& g) const {
  down.backward_input(pass, g.dy, g.dup);  // the gradient of act, turned into that of up in place
  gelu_backward(*pass.ops, {.x = saved.up, .dy = g.dup, .dx = g.dup});
  up.backward_input(pass, g.dup, g.dx);
}

void GeluMlp::backward_weight(const Pass& pass, const Saved& saved, const Gradients& g) const {
  down.backward_weight(pass, g.dy, saved.act);
  up.backward_weight(pass, g.dup, saved.x);
}

void SwigluMlp::forward(const Pass& pass, const Saved& saved) const {
  gate.forward(pass, saved.x, saved.gate);
  up.forward(pass, saved.x, saved.up);
  swiglu_forward(*pass.ops, {.gate = saved.gate, .up = saved.up, .y = saved.act});
  down.forward(pass, saved.act, saved.y);
}

void SwigluMlp::backward_input(const Pass& pass, const Saved& saved, const Gradients& g) const {
  down.backward_input(pass, g.dy, g.dgate);
  swiglu_backward(
      *pass.ops,
      {.gate = saved.gate, .up = saved.up, .dy = g.dgate, .dgate = g.dgate, .dup = g.dup});
  gate.backward_input(pass, g.dgate, g.dx);
  up.backward_input(pass, g.dup, g.dx, true);
}

void SwigluMlp::backward_weight(const Pass& pass, const Saved& saved, const Gradients& g) const {
  down.backward_weight(pass, g.dy, saved.act);
  gate.backward_weight(pass, g.dgate, saved.x);
  up.backward_weight(pass, g.dup, saved.x);
}

GeluMlp make_gelu_mlp(const WeightSource& weights, const ModelShape& model,
                      const std::string& name) {
  return {make_linear(weights, name + ".up", model.linear_bias),
          make_linear(weights, name + ".down", model.linear_bias)};
}

SwigluMlp make_swiglu_mlp(const WeightSource& weights, const ModelShape& model,
                          const std::string& name) {
  return {make_linear(weights, name + ".gate", model.linear_bias),
          make_linear(weights, name + ".up", model.linear_bias),
          make_linear(weights, name + ".down", model.linear_bias)};
}

}  // namespace trainctl
