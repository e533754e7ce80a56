// The interface of every layer. A layer is a plain struct: its weights are members, and everything
// it keeps between passes is in its Saved, whose tensors are placed by the activation table, with
// one Saved for each place where a micro-batch may lie. forward reads Saved's inputs and writes its
// outputs; backward_input computes the gradient of the input and completes the gradients of
// vectors; backward_weight adds the gradients of matrices and may run at any later time.
#pragma once

#include <concepts>

#include "nn/exchange/pass.h"

namespace trainctl {

template <class L>
concept Layer = requires(const L layer, const Pass& pass, const typename L::Saved& saved,
                         typename L::Gradients& gradients) {
  { layer.forward(pass, saved) } -> std::same_as<void>;
  { layer.backward_input(pass, saved, gradients) } -> std::same_as<void>;
  { layer.backward_weight(pass, saved, gradients) } -> std::same_as<void>;
};

}  // namespace trainctl
