#include "plan/model/mlp.h"

namespace trainctl {

FeedForwardRows<RowSpec> feed_forward_rows(std::int64_t rows, std::int64_t ffn, bool gated,
                                           DType compute) {
  const RowSpec up{{rows, ffn}, compute, life::for_backward, BlockPart::mlp};
  return {.up = up,
          .gate = gated ? up : RowSpec{},
          .act = {up.shape, compute, life::for_weight, BlockPart::activation}};
}

FeedForwardRows<RowSpec> feed_forward_gradients(std::int64_t rows, std::int64_t ffn, bool gated,
                                                DType compute) {
  const RowSpec up{{rows, ffn}, compute, life::output_gradient};
  return {.up = up, .gate = gated ? up : RowSpec{}};
}

Products feed_forward_products(std::int64_t rows, std::int64_t hidden, std::int64_t ffn,
                               bool gated) {
  const Product up{BlockPart::mlp, rows, hidden, ffn};
  Products products{up};
  if (gated) products.push_back(up);
  products.push_back({BlockPart::activation, rows, 0, ffn});
  products.push_back({{}, rows, ffn, hidden});
  return products;
}

Products mlp_products(const LayerForm& form, const LocalShape& local) {
  return feed_forward_products(local.mlp_rows, form.hidden, local.ffn, form.gated);
}

Exchanges mlp_exchanges(const LayerForm& form, const LayerShare& share) {
  return region_exchanges(form, share, Cargo::mlp, BlockPart::mlp, {}, share.split.feed_forward,
                          share.overlap.mlp);
}

}  // namespace trainctl
