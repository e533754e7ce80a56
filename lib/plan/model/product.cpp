#include "plan/model/product.h"

namespace trainctl {

namespace {

double exact(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

double Product::flops() const {
  // Under the causal mask alone each query meets half of the keys, and itself: a product with k and
  // one with v.
  if (is_attention()) return 4 * exact(rows) * exact(out) * met_keys();
  return 2 * exact(rows) * exact(in) * exact(out);
}

double matrix_flops(const Products& products) {
  double flops = 0;
  for (const Product& one : products) flops += one.is_attention() ? 0 : one.flops();
  return flops;
}

double Product::elements() const { return exact(written > 0 ? written : rows) * exact(out); }

}  // namespace trainctl
