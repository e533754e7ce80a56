#include "nn/norm.h"

#include "ops/norm.h"

namespace trainctl {

namespace {

NormKind kind_of(const Norm& norm) {
  return norm.bias.empty() ? NormKind::rms_norm : NormKind::layer_norm;
}

void normalise(const Norm& norm, const Pass& pass, const Norm::Saved& saved, const Tensor& x,
               const Tensor& residual) {
  norm_forward(*pass.ops, {.kind = kind_of(norm),
                           .x = x,
                           .residual = residual,
                           .sum = residual.empty() ? Tensor{} : saved.x,
                           .weight = norm.weight.value,
                           .bias = norm.bias.value,
                           .y = saved.y,
                           .mean = saved.mean,
                           .rstd = saved.rstd,
                           .epsilon = norm.epsilon,
                           .x_factor = residual.empty() ? 1.0F : norm.branch_factor,
                           .zero_centered = norm.zero_centered,
                           .sums = saved.sums,
                           .features = norm.features});
}

}  // namespace

void Norm::add_up(const Pass& pass, const Saved& saved, const Tensor& dy) const {
  norm_sums(*pass.ops, {.x = saved.x,
                        .dy = dy,
                        .weight = dy.empty() ? Tensor{} : weight.value,
                        .sums = saved.sums,
                        .zero_centered = zero_centered});
}

void Norm::forward(const Pass& pass, const Saved& saved) const {
  normalise(*this, pass, saved, saved.x, Tensor{});
}

void Norm::forward(const Pass& pass, const Saved& saved, const Tensor& branch,
                   const Tensor& residual) const {
  normalise(*this, pass, saved, branch, residual);
}

void Norm::backward(const Pass& pass, const Saved& saved, const Tensor& dy,
                    const Tensor& d_residual, const Tensor& dx) const {
  norm_backward(*pass.ops, {.kind = kind_of(*this),
                            .dy = dy,
                            .x = saved.x,
                            .weight = weight.value,
                            .mean = saved.mean,
                            .rstd = saved.rstd,
                            .d_residual = d_residual,
                            .dx = dx,
                            .dweight = weight.gradient,
                            .dbias = bias.gradient,
                            .zero_centered = zero_centered,
                            .sums = saved.sums,
                            .features = features});
}

Norm make_norm(const WeightSource& weights, const std::string& name, NormKind kind,
               const ModelShape& model) {
  const bool has_bias = kind == NormKind::layer_norm;
  return {weights(name + ".weight"), has_bias ? weights(name + ".bias") : Weight{},
          static_cast<float>(model.norm_epsilon), static_cast<float>(model.residual_multiplier),
          model.zero_centered_norm};
}

Norm make_unweighted_norm(const ModelShape& model) {
  Norm norm;
  norm.epsilon = static_cast<float>(model.norm_epsilon);
  norm.weighted = false;
  return norm;
}

}  // namespace trainctl
