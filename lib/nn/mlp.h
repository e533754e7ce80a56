// The plain feed-forward layer, act(up) -> down or act(gate) * up -> down; and the saved tensors of
// all feed-forward layers, including experts (experts.h).
#pragma once

#include "nn/linear.h"
#include "ops/activation.h"
#include "plan/model/experts.h"
#include "plan/tables/model.h"

namespace trainctl {

struct StageInput;

/// The additional tensors of a layer of experts; empty in a plain layer. If no other rank routes
/// this rank's tokens, tensors such as all_logits share memory with logits and the like.
struct RoutedRows : ExpertRows<Tensor>, ExpertTransit<Tensor>, ExpertScratch<Tensor> {};

/// The additional tensors of shared experts. Sizes: T tokens, F features of this rank.
struct SharedRows : FeedForwardRows<Tensor> {
  Tensor logit;   // [T, 1] fp32, of the gate; may be empty
  Tensor scaled;  // [T, F] temporary: act times the gate
  Tensor y;  // [S, hidden] temporary if routed experts take S rows: output, then input gradient
};

/// Sizes: T tokens that the layer works on, S of which are in this rank's part of the residual
/// stream; F features of this rank. `gate` and `dgate` exist in gated layers. If T is S, all_x is
/// x, partial is y, all_dy is dy, partial_dx is dx; if T is less, this rank's rows of x, y, dy, dx.
struct MlpSaved : FeedForwardRows<Tensor> {
  Tensor x;              // [S, hidden]
  Tensor all_x;          // [T, hidden] temporary, unless it is kept
  bool keeps_x = false;  // all_x stays valid until R and W
  Tensor partial;        // [T, hidden] temporary
  Tensor y;              // [S, hidden]
  RoutedRows routed{};   // rows of experts; gate, up and act then have these rows, not T
  SharedRows shared{};
};

struct MlpGradients {
  Tensor dy;          // [S, hidden]
  Tensor all_dy;      // [T, hidden]
  Tensor dgate, dup;  // [T, F]
  Tensor partial_dx;  // [T, hidden] temporary
  Tensor dx;          // [S, hidden]
  // Only for experts (plan/model/experts.h); dgate and dup then have experts' rows, not T.
  Tensor d_logits{}, all_d_logits{}, d_rows{}, d_row_weight{}, narrow{};
  Tensor shared_dgate{}, shared_dup{}, shared_d_logit{}, shared_all_d_logit{};
};

/// Writes act from up, or in a gated layer from gate and up.
void activate(const Pass& pass, Activation kind, const GateForm& form,
              const FeedForwardRows<Tensor>& rows);
/// Replaces the gradient of act, which is in d.gate, or in d.up of a layer that is not gated, by
/// the gradients of these two.
void activate_backward(const Pass& pass, Activation kind, const GateForm& form,
                       const FeedForwardRows<Tensor>& rows, const FeedForwardRows<Tensor>& d);

struct Mlp {
  using Saved = MlpSaved;
  using Gradients = MlpGradients;
  Activation activation = Activation::gelu;
  GateForm gate_form;
  Linear gate;  // empty if not gated
  Linear up, down;
  Reshard enter, leave;

  void forward(const Pass& pass, const Saved& saved) const;
  /// The forward pass before the last product: widen computes `up` (and `gate`) from all_x, which
  /// it gathers from x if `gathers`; activate computes `act`.
  void widen(const Pass& pass, const Saved& saved, bool gathers) const;
  void activate(const Pass& pass, const Saved& saved) const;
  void backward_input(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  void backward_weight(const Pass& pass, const Saved& saved, const Gradients& gradients) const;

 private:
  bool gated() const { return !gate.weight.empty(); }
  /// Whether one kernel computes the activation together with the neighbouring product.
  bool fused() const { return !gated() && activation == Activation::gelu; }
  void backward_activation(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  void add_first_weights(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
};

/// The offset and the limit of the gate, the same for all gated feed-forward layers of the model.
GateForm gate_form_of(const ModelShape& model);

/// Makes the feed-forward layer `layer` of the model.
Mlp make_mlp(const StageInput& input, std::int64_t layer);

}  // namespace trainctl
