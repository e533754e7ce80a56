// What a call of each operation moves and computes: the figures by which its time is judged.
#pragma once

#include <initializer_list>

#include "ops/kernels.h"

namespace trainctl {

/// Bytes that are read or written once, whatever the kernel does; floating-point operations of
/// matrix products, of attention those that the causal mask leaves.
struct OpCost {
  double bytes = 0;
  double flops = 0;
};

double bytes_of(std::initializer_list<Tensor> tensors);
double flops_of(const MatmulShape& shape);
/// Of a query and a key that it sees, one product's.
double attention_product_flops(const AttentionShape& shape);

#define KERNEL(entry, Args) OpCost cost_of(const Args& args);
#include "ops/kernels.def"
#undef KERNEL

}  // namespace trainctl
