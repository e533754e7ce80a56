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
  // If the outputs of several ranks are summed, one of these ranks adds the bias.
  bool adds_bias = true;

  /// x [tokens, in] -> y [tokens, out], overwritten.
  void forward(const Pass& pass, const Tensor& x, const Tensor& y) const;
  /// dy [tokens, out] -> dx [tokens, in], overwritten or accumulated.
  void backward_input(const Pass& pass, const Tensor& dy, const Tensor& dx,
                      bool accumulate = false) const;
  /// As forward, and also writes GELU of y to `act`.
  void forward_gelu(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& act) const;
  /// The gradient of `up`, of which x was GELU: dy [tokens, out] -> d_up [tokens, in], overwritten.
  void backward_input_gelu(const Pass& pass, const Tensor& dy, const Tensor& up,
                           const Tensor& d_up) const;
  /// Adds the sum of dy's rows to the bias gradient.
  void backward_bias(const Pass& pass, const Tensor& dy) const;
  /// Adds dy^T x to the weight gradient.
  void backward_weight(const Pass& pass, const Tensor& dy, const Tensor& x) const;
  /// backward_bias and backward_weight.
  void backward_parameters(const Pass& pass, const Tensor& dy, const Tensor& x) const;
  /// backward_parameters for the last product of a region in two steps, the first before all_dy is
  /// gathered: dy is this rank's part of all_dy or the whole. The bias gradient is that of dy.
  void backward_part_bias(const Pass& pass, const Tensor& dy, const Tensor& all_dy) const;
  void backward_whole_weight(const Pass& pass, const Tensor& dy, const Tensor& all_dy,
                             const Tensor& x) const;

  /// The product that `forward` makes.
  Matmul forward_product(const Tensor& x, const Tensor& y) const;

 private:
  Matmul input_product(const Tensor& dy, const Tensor& dx) const;
};

/// One of up to max_together layers with the same input, as q, k and v, and its output or the
/// gradient of that. One without a weight is left out.
struct LayerOutput {
  const Linear& layer;
  Tensor y;
};
inline constexpr std::size_t max_together = 4;

/// `forward` and `backward_parameters` of each; the products as a batch (ops/matmul.h).
void forward_together(const Pass& pass, const Tensor& x, std::initializer_list<LayerOutput> list);
void backward_parameters_together(const Pass& pass, const Tensor& x,
                                  std::initializer_list<LayerOutput> list);

/// Adds dy^T x to the gradient of `weight`, or begins it, through weight.apart if that is given;
/// and adds the sums of dy's rows to `bias_gradient`, if it is not empty.
void add_weight_gradient(const Pass& pass, const Weight& weight, const Tensor& dy, const Tensor& x,
                         const Tensor& bias_gradient = {});

/// The layer `name`.weight and, if `with_bias`, `name`.bias.
Linear make_linear(const WeightSource& weights, const std::string& name, bool with_bias);
/// Layer `index` of several with weights [layers, out, in] and biases [layers, out]. The number of
/// its rows varies.
Linear layer_of(const Linear& all, std::int64_t index);
/// The last product of an operator. By features the outputs are summed over the ranks of `tp`: the
/// first adds the bias.
Linear make_row_linear(const WeightSource& weights, const std::string& name, bool with_bias,
                       const TensorParallel& tp, SplitBy split);

// The backward of the first products of a region, whose input the ranks gather: the gradient of
// that input is summed, and the weight gradients need the input again. What an Exchange says of
// `forward_whole`, `backward_whole` and `weights_in_back` is done here, for attention and MLP
// alike.

/// `saved` and `g` are those of a layer: x and dx [S, hidden], for S of T tokens in this rank's
/// part of the residual stream; all_x, still there with keeps_x, and partial_dx, for a moment, [T,
/// hidden].
class GatheredProducts {
 public:
  GatheredProducts() = default;
  GatheredProducts(const TensorParallel& tp, const Exchange& enter)
      : enter_(tp.along(enter)), weights_in_back_(enter.weights_in_back) {}

  /// work(RowRange) makes the products of rows of all_x, which are gathered if `gathers`, else
  /// there.
  template <class Work>
  void forward(const Pass& pass, const Tensor& x, const Tensor& all_x, bool gathers,
               const Work& work) const {
    if (gathers) return enter_.forward_then(pass, x, all_x, work);
    work(RowRange{0, all_x.rows()});
  }

  /// input(RowRange, to) makes the gradient of rows of all_x in `to`; weights() adds the weight
  /// gradients, from all_x.
  template <class Saved, class Gradients, class Input, class Weights>
  void backward_input(const Pass& pass, const Saved& saved, const Gradients& g, const Input& input,
                      const Weights& weights) const {
    if (!weights_in_back_) return enter_.backward_after(pass, g.partial_dx, g.dx, input);
    const Event gathered = gather_again(pass, saved);
    input(RowRange{0, g.partial_dx.rows()}, g.partial_dx);
    Reshard::await(pass, gathered);
    const Event scattered = enter_.start_backward(pass, g.partial_dx, g.dx);
    weights();
    Reshard::await(pass, scattered);
  }

  /// last() adds the weight gradient of the region's last product, which reads nothing of this.
  template <class Saved, class Last, class Weights>
  void backward_weight(const Pass& pass, const Saved& saved, const Last& last,
                       const Weights& weights) const {
    if (weights_in_back_) return last();
    const Event gathered = gather_again(pass, saved);
    last();
    Reshard::await(pass, gathered);
    weights();
  }

 private:
  template <class Saved>
  Event gather_again(const Pass& pass, const Saved& saved) const {
    return saved.keeps_x ? Event{} : enter_.start_forward(pass, saved.x, saved.all_x);
  }

  Reshard enter_;
  bool weights_in_back_ = false;
};

}  // namespace trainctl
