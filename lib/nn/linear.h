// y = x W^T + b, with the three products of a training step as separate calls. "Column" and "row"
// parallel layers differ only in the shard of the weight that they hold.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "nn/layer.h"
#include "nn/reshard.h"
#include "ops/matmul.h"

namespace trainctl {

struct Linear {
  Weight weight;  // [out, in]
  Weight bias;    // [out] or empty
  // If the outputs of several ranks are summed, only one rank adds the bias.
  bool adds_bias = true;

  /// x [tokens, in] -> y [tokens, out], overwritten.
  void forward(const Pass& pass, const Tensor& x, const Tensor& y) const;
  /// dy [tokens, out] -> dx [tokens, in], overwritten or accumulated.
  void backward_input(const Pass& pass, const Tensor& dy, const Tensor& dx,
                      bool accumulate = false) const;
  /// Like forward, but also writes GELU(y) to `act`.
  void forward_gelu(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& act) const;
  /// If x = GELU(up): dy [tokens, out] -> d_up [tokens, in], the gradient of `up`, overwritten.
  void backward_input_gelu(const Pass& pass, const Tensor& dy, const Tensor& up,
                           const Tensor& d_up) const;
  /// Adds the sum of dy's rows to the bias gradient.
  void backward_bias(const Pass& pass, const Tensor& dy) const;
  /// Adds dy^T x to the weight gradient.
  void backward_weight(const Pass& pass, const Tensor& dy, const Tensor& x) const;
  /// Calls backward_bias and backward_weight.
  void backward_parameters(const Pass& pass, const Tensor& dy, const Tensor& x) const;
  /// backward_parameters for the last product of a region, in two steps: backward_part_bias runs
  /// before all_dy is gathered and sums dy for the bias. dy is this rank's part or all of all_dy.
  void backward_part_bias(const Pass& pass, const Tensor& dy, const Tensor& all_dy) const;
  void backward_whole_weight(const Pass& pass, const Tensor& dy, const Tensor& all_dy,
                             const Tensor& x) const;

  /// The product that `forward` computes.
  Matmul forward_product(const Tensor& x, const Tensor& y) const;

 private:
  Matmul input_product(const Tensor& dy, const Tensor& dx) const;
};

/// One of up to max_together layers with the same input, such as q, k and v. `y` is its output or
/// the gradient of its output. A layer without a weight is skipped.
struct LayerOutput {
  const Linear& layer;
  Tensor y;
};
inline constexpr std::size_t max_together = 4;

/// Run `forward` or `backward_parameters` of each layer, with one batch of products (ops/matmul.h).
void forward_together(const Pass& pass, const Tensor& x, std::initializer_list<LayerOutput> list);
void backward_parameters_together(const Pass& pass, const Tensor& x,
                                  std::initializer_list<LayerOutput> list);

/// Adds dy^T x to the gradient of `weight` (the first product of a step overwrites), through
/// weight.apart if given. Also adds the sums of dy's rows to `bias_gradient`, unless it is empty.
void add_weight_gradient(const Pass& pass, const Weight& weight, const Tensor& dy, const Tensor& x,
                         const Tensor& bias_gradient = {});

/// Makes the layer with weight `name`.weight and, if `with_bias`, bias `name`.bias.
Linear make_linear(const WeightSource& weights, const std::string& name, bool with_bias);
/// Layer `index` of `all`, whose weights are [layers, out, in] and biases [layers, out]. The number
/// of rows varies between its products.
Linear layer_of(const Linear& all, std::int64_t index);
/// The last linear layer of an operator. If the operator is split by features, the ranks of `tp`
/// sum their outputs, and only the first rank adds the bias.
Linear make_row_linear(const WeightSource& weights, const std::string& name, bool with_bias,
                       const TensorParallel& tp, SplitBy split);

// The first products of a region, whose input the ranks gather with `enter`. In the backward pass
// the input's gradient is summed over the ranks, and the weight gradients need the gathered input
// again, for W or already for B (Exchange::weights_in_back). For attention and MLP: `saved` and `g`
// are those of a layer with T tokens, S of which are in this rank's part of the residual stream. x
// and dx are [S, hidden]; all_x (kept with keeps_x) and partial_dx (temporary) are [T, hidden].

/// Calls work(Range), which makes the products of these rows of all_x. all_x is gathered first
/// if `gathers`; otherwise it is already there.
template <class Saved, class Work>
void gathered_products(const Pass& pass, const Reshard& enter, const Saved& saved, bool gathers,
                       const Work& work) {
  if (gathers) return enter.forward_then(pass, saved.x, saved.all_x, work);
  work(Range{0, saved.all_x.rows()});
}

/// Starts to gather all_x, unless it was kept.
template <class Saved>
Event gather_again(const Pass& pass, const Reshard& enter, const Saved& saved) {
  return saved.keeps_x ? Event{} : enter.start_forward(pass, saved.x, saved.all_x);
}

/// input(Range, to) writes the gradient of these rows of all_x to `to`; weights() adds the
/// weight gradients, reading all_x.
template <class Saved, class Gradients, class Input, class Weights>
void gathered_backward_input(const Pass& pass, const Reshard& enter, const Saved& saved,
                             const Gradients& g, const Input& input, const Weights& weights) {
  if (!enter.way.weights_in_back) return enter.backward_after(pass, g.partial_dx, g.dx, input);
  const Event gathered = gather_again(pass, enter, saved);
  input(Range{0, g.partial_dx.rows()}, g.partial_dx);
  Reshard::await(pass, gathered);
  const Event scattered = enter.start_backward(pass, g.partial_dx, g.dx);
  weights();
  Reshard::await(pass, scattered);
}

/// last() adds the weight gradient of the region's last product, and does not read all_x.
template <class Saved, class Last, class Weights>
void gathered_backward_weight(const Pass& pass, const Reshard& enter, const Saved& saved,
                              const Last& last, const Weights& weights) {
  if (enter.way.weights_in_back) return last();
  const Event gathered = gather_again(pass, enter, saved);
  last();
  Reshard::await(pass, gathered);
  weights();
}

}  // namespace trainctl
