// A feed-forward layer of experts, with its router and its shared experts.
#pragma once

#include "nn/expert_exchange.h"
#include "nn/mlp.h"
#include "nn/reshard.h"
#include "ops/router.h"
#include "plan/tables/model.h"

namespace trainctl {

struct StageInput;

/// How routers choose experts for tokens, and the weights of router losses (ops/router.h).
struct RouterRule {
  std::int64_t group = 0;  // tokens of a routing group; all tokens of the pass if 0
  RouterCapacity capacity{};
  RouterChoice choice{};
  float balance_factor = 0;
  float z_factor = 0;
};

RouterRule router_rule(const ModelShape& model);

// The shared experts are one MLP for all tokens. Its output is added to the output of the routed
// experts. If it has a gate, its output is multiplied by the sigmoid of the product of the token's
// input and `router`, which has one output (Qwen2-MoE). Ranks along tp hold parts of its width.

struct SharedExperts {
  Weight router;  // [1, hidden] fp32, of the gate; empty without a gate
  Activation activation = Activation::gelu;
  GateForm gate_form{};
  Weight gate, up, down;  // [F, hidden], `down` [hidden, F]; gate is empty in an ungated MLP, up
                          // without shared experts

  bool empty() const { return up.empty(); }
  /// Writes shared.up (and shared.gate) from all_x.
  void widen(const Pass& pass, const MlpSaved& saved) const;
  void activate(const Pass& pass, const MlpSaved& saved) const;
  /// Writes this rank's part of the output's sum over tp to saved.partial, or adds it there.
  void project(const Pass& pass, const MlpSaved& saved, bool accumulate) const;
  /// Computes the gradients of shared.up, shared.gate and shared.logit from all_dy, and writes the
  /// gradient of all_x to partial_dx, or adds it there.
  void backward_input(const Pass& pass, const MlpSaved& saved, const MlpGradients& g,
                      bool accumulate) const;
  /// Adds the gradients of the three matrices. Reads all_x.
  void backward_weight(const Pass& pass, const MlpSaved& saved, const MlpGradients& g) const;

 private:
  /// The activations `act`, times the gate if there is one.
  Tensor scaled(const Pass& pass, const MlpSaved& saved) const;
};

/// `name` is "layers.N.moe". The result is empty if the model has no shared experts.
SharedExperts make_shared_experts(const WeightSource& weights, const ModelShape& model,
                                  const std::string& name);

// A feed-forward layer of experts. A router chooses some experts for each token. An expert computes
// act(up) or act(gate) * up, multiplies it by the token's weight for this expert, and applies
// `down`. Ranks along ep hold different experts and exchange rows. Ranks along tp hold parts of
// each expert's width and see all tokens, or they hold whole experts and each sends the tokens of
// its own part of the residual stream.

struct Experts {
  using Saved = MlpSaved;
  using Gradients = MlpGradients;

  Weight router;  // [experts, hidden] fp32
  Weight bias;    // [experts] fp32, used only to choose; may be empty
  // The weights of the L experts held here: [L, F, hidden], `down` [L, hidden, F], biases [L, F]
  // and [L, hidden]; gate may be empty. Weights of choices multiply the bias of `down`.
  Linear gate, up, down;
  Activation activation = Activation::gelu;
  GateForm gate_form{};
  SharedExperts shared;
  Reshard enter, leave;
  ExpertGroups groups;
  RouterRule rule;
  std::int64_t layer = 0;  // the layer's row in Pass::router_sums

  void forward(const Pass& pass, const Saved& saved,
               ExchangePhase leg = ExchangePhase::whole) const;
  /// From x and all_x (gathered here if `gathers`) to `up` and `gate`: routes, sends the rows to
  /// the experts, and makes the first products.
  void widen(const Pass& pass, const Saved& saved, bool gathers,
             ExchangePhase leg = ExchangePhase::whole) const;
  void activate(const Pass& pass, const Saved& saved) const;
  void backward_input(const Pass& pass, const Saved& saved, const Gradients& gradients,
                      ExchangePhase leg = ExchangePhase::whole) const;
  void backward_weight(const Pass& pass, const Saved& saved, const Gradients& gradients) const;

 private:
  ExpertExchange exchange(const Pass& pass, const Saved& saved) const {
    return {pass, groups, saved.routed, false};
  }
  ExpertExchange exchange_backward(const Pass& pass, const Saved& saved) const {
    return {pass, groups, saved.routed, true};
  }
  RowOrder order_of(const Saved& saved) const;
  std::int64_t group_of(const Saved& saved, std::int64_t size) const;
  std::int64_t first_row(const Saved& saved) const;
  Tensor choices(const Saved& saved) const;
  Tensor routed_x(const Saved& saved) const { return groups.by_stream ? saved.x : saved.all_x; }
  Tensor local_rows(const Saved& saved, const Tensor& all) const;
  Tensor wide_input(const Pass& pass, const Saved& saved) const;
  void score(const Pass& pass, const Saved& saved) const;
  void route(const Pass& pass, const Saved& saved) const;
  void take_own(const Pass& pass, const Saved& saved) const;

  void add_statistics(const Pass& pass, const Saved& saved) const;
  bool gated() const { return !gate.weight.empty(); }
  void first_products(const Pass& pass, const Saved& saved, const Range& chunks) const;
  void activate(const Pass& pass, const Saved& saved, const Range& chunks) const;
  void scale_act(const Pass& pass, const Saved& saved, const Range& chunks) const;
  void project(const Pass& pass, const Saved& saved, const Range& chunks) const;
  void backward_activation(const Pass& pass, const Saved& saved, const Gradients& g,
                           const Range& chunks) const;
  void add_biases(const Pass& pass, const Saved& saved, const Gradients& g,
                  const Range& chunks) const;
  void backward_rows(const Pass& pass, const Saved& saved, const Gradients& g,
                     const Range& chunks) const;
  void backward_router(const Pass& pass, const Saved& saved, const Gradients& g) const;
  void add_router_input(const Pass& pass, const Saved& saved, const Gradients& g) const;
};

/// Makes layer `layer` of the model. input.experts.ep must be set.
Experts make_experts(const StageInput& input, std::int64_t layer);

}  // namespace trainctl
