// Plain feed-forward layers: what they multiply and exchange.
#pragma once

#include "plan/model/exchange.h"
#include "plan/model/form.h"
#include "plan/model/product.h"

namespace trainctl {

/// Of `rows` tokens through `ffn` features: the products before the activation function, the
/// function, and the product after it. Shared experts and each routed one have the same.
Products feed_forward_products(std::int64_t rows, std::int64_t hidden, std::int64_t ffn,
                               bool gated);

/// Of a layer without experts.
Products mlp_products(const LayerForm& form, const LocalShape& local);

/// Between the residual stream and the layer.
Exchanges mlp_exchanges(const LayerForm& form, const LayerShare& share);

}  // namespace trainctl
