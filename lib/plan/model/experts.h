// Layers of experts: the router, the experts that tokens choose, and the shared ones.
#pragma once

#include "plan/model/form.h"
#include "plan/model/product.h"
#include "plan/tables/local_shape.h"

namespace trainctl {

/// The logits of the router, and the gate of shared experts.
Products router_products(const LayerForm& form, const LocalShape& local);

/// Of the experts of a rank, which get the choices of `tokens` tokens if all experts are chosen
/// equally often: a copy of each token for each choice, and their products.
Products routed_products(const LayerForm& form, const LocalShape& local, std::int64_t tokens);

/// Of the shared experts; none where there are none.
Products shared_products(const LayerForm& form, const LocalShape& local);

}  // namespace trainctl
