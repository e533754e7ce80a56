// The backward of the first products of a region, whose input the ranks gather: the gradient of
// that input is summed, and the weight gradients need the input again. What an Exchange says of
// `forward_whole`, `backward_whole` and `weights_in_back` is done here, for attention and MLP
// alike.
#pragma once

#include "nn/exchange/reshard.h"

namespace trainctl {

/// T tokens, S of them in this rank's part of the residual stream.
struct GatheredInput {
  Tensor x;              // [S, hidden]
  Tensor all_x;          // [T, hidden] temporary, unless it is kept
  bool keeps_x = false;  // all_x is still there
  Tensor partial_dx;     // [T, hidden] temporary
  Tensor dx;             // [S, hidden]
};

/// Of what a layer saved, and its gradients.
template <class Saved, class Gradients>
GatheredInput gathered_of(const Saved& saved, const Gradients& g) {
  return {.x = saved.x,
          .all_x = saved.all_x,
          .keeps_x = saved.keeps_x,
          .partial_dx = g.partial_dx,
          .dx = g.dx};
}

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
  template <class Input, class Weights>
  void backward_input(const Pass& pass, const GatheredInput& of, const Input& input,
                      const Weights& weights) const {
    if (!weights_in_back_) return enter_.backward_after(pass, of.partial_dx, of.dx, input);
    const Event gathered = gather_again(pass, of);
    input(RowRange{0, of.partial_dx.rows()}, of.partial_dx);
    Reshard::await(pass, gathered);
    const Event scattered = enter_.start_backward(pass, of.partial_dx, of.dx);
    weights();
    Reshard::await(pass, scattered);
  }

  /// last() adds the weight gradient of the region's last product, which reads nothing of this.
  template <class Last, class Weights>
  void backward_weight(const Pass& pass, const GatheredInput& of, const Last& last,
                       const Weights& weights) const {
    if (weights_in_back_) return last();
    const Event gathered = gather_again(pass, of);
    last();
    Reshard::await(pass, gathered);
    weights();
  }

 private:
  Event gather_again(const Pass& pass, const GatheredInput& of) const {
    return of.keeps_x ? Event{} : enter_.start_forward(pass, of.x, of.all_x);
  }

  Reshard enter_;
  bool weights_in_back_ = false;
};

}  // namespace trainctl
