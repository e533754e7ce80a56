// A parameter as a layer sees it, and the interface that supplies it. Layers always see whole local
// weights; storing, sharding and reducing them is done elsewhere.
#pragma once

#include <functional>
#include <string>

#include "device/tensor.h"

namespace trainctl {

struct Weight {
  Tensor value;     // compute dtype for matrices, fp32 for vectors
  Tensor gradient;  // fp32, accumulated; empty without training
  // fp32, at least as large: holds a product before it is added to the gradient. Empty: the product
  // adds to the gradient directly.
  Tensor apart{};
  bool rows_vary = false;  // its products have different numbers of tokens from call to call
  // Where it says false, the gradient has no values yet: the next product writes them, and sets it.
  // Null: products add.
  bool* has_values = nullptr;

  bool empty() const { return value.empty(); }
};

/// Looks weights up by the names of plan/tables/params.h. An unknown name is a bug.
using WeightSource = std::function<Weight(const std::string& name)>;

/// A row of the activation table (plan/model/activations.h) by its number.
using ActivationSource = std::function<Tensor(int view, int row)>;

}  // namespace trainctl
