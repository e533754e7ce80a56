// The feed-forward layer of experts, with its router and its shared experts.
#pragma once

#include "nn/expert_exchange.h"
#include "nn/mlp.h"
#include "nn/reshard.h"
#include "ops/router.h"
#include "plan/tables/model.h"

namespace trainctl {

struct StageInput;

/// The rule by which routers of a model decide about tokens, and their losses (ops/router.h).
struct RouterRule {
  std::int64_t group = 0;  // tokens of a routing group; 0: all of the pass
  RouterCapacity capacity{};
  RouterChoice choice{};
  float balance_factor = 0;
  float z_factor = 0;
};

RouterRule router_rule(const ModelShape& model);

// The shared experts are an MLP for all tokens, whose output is added to that of the routed
// experts. With a gate it is multiplied by the sigmoid of one product of the token's input, which
// is a router with one column (Qwen2-MoE). Ranks along tp hold a part of its width.

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
  /// Adds the gradients of the three matrices. Needs all_x.
  void backward_weight(const Pass& pass, const MlpSaved& saved, const MlpGradients& g) const;

 private:
  /// act, times the gate where there is one.
  Tensor scaled(const Pass& pass, const MlpSaved& saved) const;
};

/// `name` is "layers.N.moe". Empty where the model has none.
SharedExperts make_shared_experts(const WeightSource& weights, const ModelShape& model,
                                  const std::string& name);

// A feed-forward layer of experts. A router chooses some of them for each token; each is act(up)
// or act(gate) * up, times the token's weight for it, -> down. Ranks along ep hold different
// experts and exchange rows; ranks along tp hold a part of each expert's width, and all of them see
// all tokens, or they hold whole experts and each sends the tokens of its own part of the residual
// stream.

struct Experts {
  using Saved = MlpSaved;
  using Gradients = MlpGradients;

  Weight router;  // [experts, hidden] fp32
  Weight bias;    // [experts] fp32, of the choice; or empty
  // The weights of the experts held here: [L, F, hidden] and [L, hidden, F], biases [L, F] and [L,
  // hidden]; gate may be empty. The bias of `down` is multiplied by the weight of the choice.
  Linear gate, up, down;
  Activation activation = Activation::gelu;
  GateForm gate_form{};
  SharedExperts shared;
  Reshard enter, leave;
  ExpertGroups groups;
  RouterRule rule;
  std::int64_t layer = 0;  // its row in Pass::router_sums

  void forward(const Pass& pass, const Saved& saved,
               ExchangePhase leg = ExchangePhase::whole) const;
  /// From x and all_x, which is gathered if `gathers`, to `up` (and `gate`): routing, the exchange,
  /// the first products.
  void widen(const Pass& pass, const Saved& saved, bool gathers,
             ExchangePhase leg = ExchangePhase::whole) const;
  void activate(const Pass& pass, const Saved& saved) const;
  void backward_input(const Pass& pass, const Saved& saved, const Gradients& gradients,
                      ExchangePhase leg = ExchangePhase::whole) const;
  void backward_weight(const Pass& pass, const Saved& saved, const Gradients& gradients) const;

 private:
  ExpertExchange exchange(const Pass& pass, const Saved& saved,
                          ExpertPass direction = ExpertPass::forward) const {
    return {pass, groups, saved.routed, direction};
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
  void first_products(const Pass& pass, const Saved& saved, const RowRange& chunks) const;
  void activate(const Pass& pass, const Saved& saved, const RowRange& chunks) const;
  void scale_act(const Pass& pass, const Saved& saved, const RowRange& chunks) const;
  void project(const Pass& pass, const Saved& saved, const RowRange& chunks) const;
  void backward_activation(const Pass& pass, const Saved& saved, const Gradients& g,
                           const RowRange& chunks) const;
  void add_biases(const Pass& pass, const Saved& saved, const Gradients& g,
                  const RowRange& chunks) const;
  void backward_rows(const Pass& pass, const Saved& saved, const Gradients& g,
                     const RowRange& chunks) const;
  void backward_router(const Pass& pass, const Saved& saved, const Gradients& g) const;
  void add_router_input(const Pass& pass, const Saved& saved, const Gradients& g) const;
};

/// For layer `layer` of the model; its group `experts.ep` is there.
Experts make_experts(const StageInput& input, std::int64_t layer);

}  // namespace trainctl
