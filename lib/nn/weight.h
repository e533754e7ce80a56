// A parameter as a layer sees it, and where layers get theirs from. Layers always see whole local
// weights; who stores, shards or reduces them is no concern of theirs.
#pragma once

#include <functional>
#include <string>

#include "device/tensor.h"

namespace trainctl {

struct Weight {
  Tensor value;     // compute dtype for matrices, fp32 for vectors
  Tensor gradient;  // fp32, accumulated; empty where no training is wanted
  // fp32, at least as large: where a product is put before it is added to the gradient; empty: the
  // product adds to the gradient itself.
  Tensor apart{};

  bool empty() const { return value.empty(); }
};

/// By the names of plan/tables/params.h. Asking for a name that is not in the table is a bug.
using WeightSource = std::function<Weight(const std::string& name)>;

/// By the names of plan/tables/activations.h; rows shared by all micro-batches ignore `slot`.
using ActivationSource = std::function<Tensor(int slot, const std::string& name)>;

}  // namespace trainctl
