// The memory and operations of the layers of each kind.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace trainctl {

/// The cost of one kind of layers, and of one layer of it.
struct KindCost {
  LayerKind kind;
  std::vector<std::int64_t> layers{};  // of this kind, from 0
  std::int64_t parameters = 0;         // of the whole layer
  double flops = 0;                    // of a step, over all ranks
  std::int64_t kept = 0;               // bytes on one rank of a micro-batch between F and B
};

/// In the order of ModelShape::kinds; of each kind, its first layer stands for all.
std::vector<KindCost> kind_costs(const Plan& plan);

}  // namespace trainctl
