// The MLP beside the routed experts: all tokens go through it, and what it gives is added to what
// they give. With a gate it is multiplied by the sigmoid of one product of the token's input, which
// is a router with one column (Qwen2-MoE). Ranks along tp hold a part of its width.
#pragma once

#include "nn/mlp.h"

namespace trainctl {

struct SharedExperts {
  Weight router;  // [1, hidden] fp32: of the gate; or empty
  Activation activation = Activation::gelu;
  GateForm gate_form{};
  Weight gate, up, down;  // [F, hidden] and [hidden, F]; `gate` of a gated MLP; no `up`: there are
                          // no shared experts

  bool empty() const { return up.empty(); }
  /// From all_x to shared.up (and shared.gate).
  void widen(const Pass& pass, const MlpSaved& saved) const;
  void activate(const Pass& pass, const MlpSaved& saved) const;
  /// Their output, this rank's part of the sum over tp, -> saved.partial, or added to it.
  void project(const Pass& pass, const MlpSaved& saved, bool accumulate) const;
  /// From all_dy to the gradients of shared.up, shared.gate and shared.logit; that of all_x ->
  /// partial_dx, or added to it.
  void backward_input(const Pass& pass, const MlpSaved& saved, const MlpGradients& g,
                      bool accumulate) const;
  /// Of the three matrices; all_x is there.
  void backward_weight(const Pass& pass, const MlpSaved& saved, const MlpGradients& g) const;

 private:
  /// act, times the gate where there is one.
  Tensor scaled(const Pass& pass, const MlpSaved& saved) const;
};

/// `name` is "layers.N.moe". Empty where the model has none.
SharedExperts make_shared_experts(const WeightSource& weights, const ModelShape& model,
                                  const std::string& name);

}  // namespace trainctl
