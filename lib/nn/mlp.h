// The two feed-forward layers: up -> GELU -> down, and silu(gate) * up -> down.
#pragma once

#include "nn/linear.h"
#include "plan/model.h"

namespace trainctl {

/// T tokens, F features; `gate` and `dgate` are used by SwigluMlp only.
struct MlpSaved {
  Tensor x;         // [T, hidden]
  Tensor gate, up;  // [T, F] before the activation
  Tensor act;       // [T, F] after it
  Tensor y;         // [T, hidden]
};

struct MlpGradients {
  Tensor dy;          // [T, hidden]
  Tensor dgate, dup;  // [T, F]
  Tensor dx;          // [T, hidden]
};

struct GeluMlp {
  using Saved = MlpSaved;
  using Gradients = MlpGradients;
  Linear up, down;

  void forward(const Pass& pass, const Saved& saved) const;
  void backward_input(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  void backward_weight(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
};

struct SwigluMlp {
  using Saved = MlpSaved;
  using Gradients = MlpGradients;
  Linear gate, up, down;

  void forward(const Pass& pass, const Saved& saved) const;
  void backward_input(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
  void backward_weight(const Pass& pass, const Saved& saved, const Gradients& gradients) const;
};

/// `name` is "layers.N.mlp".
GeluMlp make_gelu_mlp(const WeightSource& weights, const ModelShape& model,
                      const std::string& name);
SwigluMlp make_swiglu_mlp(const WeightSource& weights, const ModelShape& model,
                          const std::string& name);

}  // namespace trainctl
