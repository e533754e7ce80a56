#include "nn/norm.h"

#include "ops/layernorm.h"
#include "ops/rmsnorm.h"

namespace trainctl {

namespace {

void normalise(const Norm& norm, const Pass& pass, const Norm::Saved& saved, const Tensor& x,
               const Tensor& residual) {
  const Tensor sum = residual.empty() ? Tensor{} : saved.x;
  if (norm.bias.empty()) {
    rmsnorm_forward(*pass.ops, {.x = x,
                                .residual = residual,
                                .sum = sum,
                                .weight = norm.weight.value,
                                .y = saved.y,
                                .rstd = saved.rstd,
                                .epsilon = norm.epsilon});
    return;
  }
  layernorm_forward(*pass.ops, {.x = x,
                                .residual = residual,
                                .sum = sum,
                                .weight = norm.weight.value,
                                .bias = norm.bias.value,
                                .y = saved.y,
                                .mean = saved.mean,
                                .rstd = saved.rstd,
                                .epsilon = norm.epsilon});
}

}  // namespace

void Norm::forward(const Pass& pass, const Saved& saved) const {
  normalise(*this, pass, saved, saved.x, Tensor{});
}

void Norm::forward(const Pass& pass, const Saved& saved, const Tensor& branch,
                   const Tensor& residual) const {
  normalise(*this, pass, saved, branch, residual);
}

void Norm::backward(const Pass& pass, const Saved& saved, const Tensor& dy,
                    const Tensor& d_residual, const Tensor& dx) const {
  if (bias.empty()) {
    rmsnorm_backward(*pass.ops, {.dy = dy,
                                 .x = saved.x,
                                 .weight = weight.value,
                                 .rstd = saved.rstd,
                                 .d_residual = d_residual,
                                 .dx = dx,
                                 .dweight = weight.gradient});
    return;
  }
  layernorm_backward(*pass.ops, {.dy = dy,
                                 .x = saved.x,
                                 .weight = weight.value,
                                 .mean = saved.mean,
                                 .rstd = saved.rstd,
                                 .d_residual = d_residual,
                                 .dx = dx,
                                 .dweight = weight.gradient,
                                 .dbias = bias.gradient});
}

Norm make_norm(const WeightSource& weights, const std::string& name, NormKind kind,
               double epsilon) {
  const bool has_bias = kind == NormKind::layer_norm;
  return {weights(name + ".weight"), has_bias ? weights(name + ".bias") : Weight{},
          static_cast<float>(epsilon)};
}

}  // namespace trainctl
