#include "nn/linear.h"

#include "ops/add.h"
#include "ops/bias_gradient.h"
#include "ops/matmul.h"

namespace trainctl {

void Linear::forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  matmul(*pass.ops, {.a = x,
                     .b = weight.value,
                     .c = y,
                     .bias = adds_bias ? bias.value : Tensor{},
                     .transpose_b = true,
                     .varies = weight.rows_vary});
}

void Linear::backward_input(const Pass& pass, const Tensor& dy, const Tensor& dx,
                            bool accumulate) const {
  matmul(
      *pass.ops,
      {.a = dy, .b = weight.value, .c = dx, .accumulate = accumulate, .varies = weight.rows_vary});
}

void Linear::backward_bias(const Pass& pass, const Tensor& dy) const {
  if (!bias.empty()) bias_gradient(*pass.ops, {.dy = dy, .db = bias.gradient});
}

void Linear::backward_weight(const Pass& pass, const Tensor& dy, const Tensor& x) const {
  add_weight_gradient(pass, weight, dy, x);
}

void add_weight_gradient(const Pass& pass, const Weight& weight, const Tensor& dy,
                         const Tensor& x) {
  const Tensor& gradient = weight.gradient;
  const bool direct = weight.apart.empty();
  const Tensor made =
      direct ? gradient : weight.apart.slice(0, gradient.numel()).view(gradient.shape);
  matmul(*pass.ops, {.a = dy,
                     .b = x,
                     .c = made,
                     .transpose_a = true,
                     .accumulate = direct,
                     .varies = weight.rows_vary});
  if (direct) return;
  add(*pass.ops, {.a = gradient, .b = made, .y = gradient});
}

Linear make_linear(const WeightSource& weights, const std::string& name, bool with_bias) {
  return {weights(name + ".weight"), with_bias ? weights(name + ".bias") : Weight{}};
}

Linear layer_of(const Linear& all, std::int64_t index) {
  const auto part = [index](const Tensor& x) {
    if (x.empty()) return x;
    const Tensor own = x.slice(index, index + 1);
    return x.shape.rank() == 2 ? own.view({x.shape[1]}) : own.view({x.shape[1], x.shape[2]});
  };
  const auto of = [&](const Weight& weight) {
    return Weight{part(weight.value), part(weight.gradient), weight.apart, true};
  };
  return {of(all.weight), of(all.bias), all.adds_bias};
}

Linear make_row_linear(const WeightSource& weights, const std::string& name, bool with_bias,
                       const TensorParallel& tp, SplitBy split) {
  Linear layer = make_linear(weights, name, with_bias);
  layer.adds_bias = split != SplitBy::features || tp.group->rank() == 0;
  return layer;
}

}  // namespace trainctl
