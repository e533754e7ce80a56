// What `trainctl bench device` times: products and attention of many shapes.
#pragma once

#include <functional>
#include <vector>

#include "bench/ops/op_bench.h"
#include "plan/prices/price_list.h"

namespace trainctl {

struct ProductCase {
  PricedProduct shape;
  std::function<void()> run;
};
struct AttentionCase {
  PricedAttention shape;
  bool backward = false;
  std::function<void()> run;
};

/// A layer's forward product and both gradients, the second accumulated in fp32, of the shapes that
/// take at most `longest` seconds at `rate` FLOP/s. Operands lie in `bench`.
std::vector<ProductCase> product_cases(const OpBench& bench, double rate, double longest);

/// Forward and backward of our kernels, of sequences of several lengths with heads of 64 and 128.
std::vector<AttentionCase> attention_cases(const OpBench& bench, double rate, double longest);

}  // namespace trainctl
