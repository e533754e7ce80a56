// Attention with its projections: what it multiplies and exchanges.
#pragma once

#include "plan/model/exchange.h"
#include "plan/model/form.h"
#include "plan/model/product.h"

namespace trainctl {

/// Queries, keys and values, attention itself, and the projection to the residual stream.
Products attention_products(const LayerForm& form, const LocalShape& local);

/// Between the residual stream and the projections.
Exchanges attention_exchanges(const LayerForm& form, const LayerShare& share);
/// Over tp, where attention is split by tokens: queries, keys and values as tokens become heads,
/// the result is given back, and the duals of both in B.
LayerCalls attention_head_calls(const LayerShare& share);
/// Over cp: the same, keys and values around a ring, or gathered (ContextSplit).
LayerCalls attention_context_calls(const LayerShare& share);

}  // namespace trainctl
