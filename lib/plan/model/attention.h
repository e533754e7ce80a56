// Attention with its projections.
#pragma once

#include "plan/model/form.h"
#include "plan/model/product.h"
#include "plan/tables/local_shape.h"

namespace trainctl {

/// Queries, keys and values, attention itself, and the projection to the residual stream.
Products attention_products(const LayerForm& form, const LocalShape& local);

}  // namespace trainctl
