#include "nn/shared_experts.h"

#include "ops/activation.h"
#include "ops/matmul.h"
#include "ops/rows.h"

namespace trainctl {

namespace {

/// A number for each token.
Tensor numbers(const Tensor& x) { return x.view({x.numel()}); }

}  // namespace

void SharedExperts::widen(const Pass& pass, const MlpSaved& saved) const {
  forward_together(pass, saved.all_x,
                   {{Linear{up, {}}, saved.shared.up}, {Linear{gate, {}}, saved.shared.gate}});
}

void SharedExperts::activate(const Pass& pass, const MlpSaved& saved) const {
  const SharedRows& rows = saved.shared;
  activation_forward(*pass.ops, {.kind = activation,
                                 .x = gate.empty() ? rows.up : rows.gate,
                                 .y = rows.act,
                                 .up = gate.empty() ? Tensor{} : rows.up,
                                 .form = gate_form});
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
  const Tensor& d_act = gate.empty() ? g.shared_dup : g.shared_dgate;  // of `scaled` and of `act`
  Linear{down, {}}.backward_input(pass, g.all_dy, d_act);
  if (!router.empty()) {
    scale_rows_backward(*pass.ops, {.x = rows.act,
                                    .weight = numbers(rows.logit),
                                    .dy = d_act,
                                    .dx = d_act,
                                    .d_weight = numbers(g.shared_all_d_logit),
                                    .sigmoid = true});
  }
  activation_backward(*pass.ops, {.kind = activation,
                                  .x = gate.empty() ? rows.up : rows.gate,
                                  .dy = d_act,
                                  .dx = d_act,
                                  .up = gate.empty() ? Tensor{} : rows.up,
                                  .dup = gate.empty() ? Tensor{} : g.shared_dup,
                                  .form = gate_form});
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

}  // namespace trainctl
