// The plain feed-forward layer: act(up) -> down, or act(gate) * up -> down; and what all
// feed-forward layers, experts (experts.h) among them, keep.
#pragma once

#include "nn/linear.h"
#include "ops/activation.h"
#include "plan/model/experts.h"
#include "plan/tables/model.h"

namespace trainctl {

struct StageInput;

/// The tensors that experts keep in addition; empty in a plain layer. all_logits and the like are
/// those of this rank's tokens where no other rank routes them.
struct RoutedRows : ExpertRows<Tensor>, ExpertTransit<Tensor>, ExpertScratch<Tensor> {};

/// The tensors that shared experts keep in addition: T tokens, F features of this rank.
struct SharedRows : FeedForwardRows<Tensor> {
  Tensor logit;   // [T, 1] fp32 of their gate; or empty
  Tensor scaled;  // [T, F] temporary: act times the gate
  Tensor y;  // [S, hidden] temporary: output, then input gradient, where routed ones take S rows
};

/// T tokens that the layer works on (S in this rank's part of the residual stream), F features of
/// this rank; `gate` and `dgate` are of a gated layer. If S is T, `all_x` is x, `partial` is
/// y, `all_dy` is dy and `partial_dx` is dx; if T is less, they are this rank's rows of these.
struct MlpSaved : FeedForwardRows<Tensor> {
  Tensor x;              // [S, hidden]
  Tensor all_x;          // [T, hidden] temporary, unless it is kept
  bool keeps_x = false;  // all_x is still there in R and W
  Tensor partial;        // [T, hidden] temporary
  Tensor y;              // [S, hidden]
  RoutedRows routed{};   // experts: gate, up and act have rows of them instead of T
  SharedRows shared{};
};

struct MlpGradients {
  Tensor dy;          // [S, hidden]
  Tensor all_dy;      // [T, hidden]
  Tensor dgate, dup;  // [T, F]
  Tensor partial_dx;  // [T, hidden] temporary
  Tensor dx;          // [S, hidden]
  // Experts (plan/model/experts.h); dgate and dup have rows of them instead of T.
  Tensor d_logits{}, all_d_logits{}, d_rows{}, d_row_weight{}, narrow{};
  Tensor shared_dgate{}, shared_dup{}, shared_d_logit{}, shared_all_d_logit{};
};

struct Mlp {
  using Saved = MlpSaved;
  using Gradients = MlpGradients;
  Activation activation = Activation::gelu;
  GateForm gate_form;
  Linear gate;  // or empty: not gated
  Linear up, down;
  GatheredProducts enter;
  Reshard leave;

  void forward(const Pass& pass, const Saved& saved) const;
  /// The parts of the forward before the last product: from all_x, which is gathered if `gathers`,
  /// to `up` (and `gate`), from there to `act`.
  void widen(const Pass& pass, const Saved& saved, bool gathers) const;
  void activate(const Pass& pass, const Saved& saved) const;
  void backward_input(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  void backward_weight(const Pass& pass, const Saved& saved, const Gradients& gradients) const;

 private:
  bool gated() const { return !gate.weight.empty(); }
  /// Whether one operation has both the activation and the product next to it.
  bool fused() const { return !gated() && activation == Activation::gelu; }
  void backward_activation(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  void add_first_weights(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
};

/// The offset and the limit of every gated feed-forward layer.
GateForm gate_form_of(const ModelShape& model);

/// For layer `layer` of the model.
Mlp make_mlp(const StageInput& input, std::int64_t layer);

}  // namespace trainctl
