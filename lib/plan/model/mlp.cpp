#include "plan/model/mlp.h"

namespace trainctl {

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
  return feed_forward_products(local.mlp_rows, form.hidden, local.ffn, form.mlp().gated);
}

Exchanges mlp_exchanges(const LayerForm& form, const LayerShare& share) {
  return region_exchanges(form, share,
                          {.cargo = Cargo::mlp,
                           .first = BlockPart::mlp,
                           .split = share.split.feed_forward,
                           .overlap = share.overlap.mlp});
}

}  // namespace trainctl
