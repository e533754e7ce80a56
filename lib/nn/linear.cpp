#include "nn/linear.h"

#include <array>
#include <cassert>
#include <span>
#include <utility>

#include "ops/elementwise.h"
#include "ops/rows.h"

namespace trainctl {

Matmul Linear::forward_product(const Tensor& x, const Tensor& y) const {
  return {.a = x,
          .b = weight.value,
          .c = y,
          .bias = adds_bias ? bias.value : Tensor{},
          .transpose_b = true,
          .varies = weight.rows_vary};
}

Matmul Linear::input_product(const Tensor& dy, const Tensor& dx) const {
  return {.a = dy, .b = weight.value, .c = dx, .varies = weight.rows_vary};
}

void Linear::forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  matmul(*pass.ops, forward_product(x, y));
}

void Linear::forward_gelu(const Pass& pass, const Tensor& x, const Tensor& y,
                          const Tensor& act) const {
  matmul_gelu(*pass.ops, {.product = forward_product(x, y), .other = act});
}

void Linear::backward_input(const Pass& pass, const Tensor& dy, const Tensor& dx,
                            bool accumulate) const {
  Matmul product = input_product(dy, dx);
  product.accumulate = accumulate;
  matmul(*pass.ops, product);
}

void Linear::backward_input_gelu(const Pass& pass, const Tensor& dy, const Tensor& up,
                                 const Tensor& d_up) const {
  matmul_gelu_backward(*pass.ops, {.product = input_product(dy, d_up), .other = up});
}

void Linear::backward_bias(const Pass& pass, const Tensor& dy) const {
  if (!bias.empty()) bias_gradient(*pass.ops, {.dy = dy, .db = bias.gradient});
}

void Linear::backward_weight(const Pass& pass, const Tensor& dy, const Tensor& x) const {
  add_weight_gradient(pass, weight, dy, x);
}

void Linear::backward_parameters(const Pass& pass, const Tensor& dy, const Tensor& x) const {
  add_weight_gradient(pass, weight, dy, x, bias.gradient);
}

namespace {
bool is_all(const Tensor& dy, const Tensor& all_dy) {
  return dy.data == all_dy.data && dy.shape == all_dy.shape;
}
}  // namespace

void Linear::backward_part_bias(const Pass& pass, const Tensor& dy, const Tensor& all_dy) const {
  if (!is_all(dy, all_dy)) backward_bias(pass, dy);
}

void Linear::backward_whole_weight(const Pass& pass, const Tensor& dy, const Tensor& all_dy,
                                   const Tensor& x) const {
  is_all(dy, all_dy) ? backward_parameters(pass, dy, x) : backward_weight(pass, all_dy, x);
}

namespace {

/// The product dy^T x: overwrites weight.apart if that is given, else adds to the gradient.
Matmul gradient_product(const Weight& weight, const Tensor& dy, const Tensor& x) {
  const Tensor& gradient = weight.gradient;
  const bool direct = weight.apart.empty();
  const bool begins = weight.has_values != nullptr && !std::exchange(*weight.has_values, true);
  return {.a = dy,
          .b = x,
          .c = direct ? gradient : weight.apart.slice(0, gradient.numel()).view(gradient.shape),
          .transpose_a = true,
          .accumulate = direct && !begins,
          .varies = weight.rows_vary};
}

/// A list of up to max_together products, without heap allocations.
class Batch {
 public:
  void add(const Matmul& product, const Tensor& sums) {
    assert(count_ < max_together);
    list_[count_++] = {product, sums};
  }
  void run(const Pass& pass) const {
    if (count_ > 0) matmul_batch(*pass.ops, std::span(list_).first(count_));
  }

 private:
  std::array<FusedMatmul, max_together> list_;
  std::size_t count_ = 0;
};

}  // namespace

void forward_together(const Pass& pass, const Tensor& x, std::initializer_list<LayerOutput> list) {
  Batch batch;
  for (const auto& [layer, y] : list) {
    if (!layer.weight.empty()) batch.add(layer.forward_product(x, y), {});
  }
  batch.run(pass);
}

void backward_parameters_together(const Pass& pass, const Tensor& x,
                                  std::initializer_list<LayerOutput> list) {
  Batch batch;
  for (const auto& [layer, dy] : list) {
    if (layer.weight.empty()) continue;
    if (layer.weight.apart.empty()) {
      batch.add(gradient_product(layer.weight, dy, x), layer.bias.gradient);
    } else {  // these layers may share one `apart` buffer
      layer.backward_parameters(pass, dy, x);
    }
  }
  batch.run(pass);
}

void add_weight_gradient(const Pass& pass, const Weight& weight, const Tensor& dy, const Tensor& x,
                         const Tensor& bias_gradient) {
  const Matmul product = gradient_product(weight, dy, x);
  if (bias_gradient.empty()) {
    matmul(*pass.ops, product);
  } else {
    matmul_column_sums(*pass.ops, {.product = product, .other = bias_gradient});
  }
  if (weight.apart.empty()) return;
  add(*pass.ops, {.a = weight.gradient, .b = product.c, .y = weight.gradient});
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
