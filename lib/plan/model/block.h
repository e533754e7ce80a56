// One block: its norms, attention and its feed-forward layer.
#pragma once

#include "plan/model/form.h"
#include "plan/model/product.h"
#include "plan/tables/local_shape.h"

namespace trainctl {

/// In the order in which the forward pass makes them. Experts get the choices of `routed` tokens.
Products block_products(const LayerForm& form, const LocalShape& local, std::int64_t routed);

/// The sizes of a rank that has a whole block and `tokens` tokens.
LocalShape whole_shape(const LayerForm& form, std::int64_t tokens);

}  // namespace trainctl
