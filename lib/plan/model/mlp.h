// Plain feed-forward layers.
#pragma once

#include "plan/model/form.h"
#include "plan/model/product.h"
#include "plan/tables/local_shape.h"

namespace trainctl {

/// Of `rows` tokens through `ffn` features: the products before the activation function, the
/// function, and the product after it. Shared experts and each routed one have the same.
Products feed_forward_products(std::int64_t rows, std::int64_t hidden, std::int64_t ffn,
                               bool gated);

/// Of a layer without experts.
Products mlp_products(const LayerForm& form, const LocalShape& local);

}  // namespace trainctl
