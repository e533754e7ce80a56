// Layers of experts: the router, the experts that tokens choose, and the shared ones.
#pragma once

#include "plan/model/exchange.h"
#include "plan/model/form.h"
#include "plan/model/product.h"

namespace trainctl {

/// The logits of the router, and the gate of shared experts.
Products router_products(const LayerForm& form, const LocalShape& local);

/// Of the experts of a rank, if all experts are chosen equally often: a copy of each token for each
/// choice, and their products.
Products routed_products(const LayerForm& form, const LocalShape& local);

/// Of the shared experts; none where there are none.
Products shared_products(const LayerForm& form, const LocalShape& local);

/// Between the residual stream and experts that need all tokens.
Exchanges expert_exchanges(const LayerForm& form, const LayerShare& share);
/// What every rank needs of what the router, and the gate of shared experts, make of the tokens of
/// each.
Exchanges router_exchanges(const LayerForm& form, const LayerShare& share);
/// The scores of the tokens that are routed together, and how many rows each expert gets.
LayerCalls router_calls(const LayerForm& form, const LayerShare& share);
/// Rows with their weights, and the gradients of both, in the order in which they travel: there and
/// back in F, there and back in B. Between parts of the same experts, each with room for the rows
/// of all of them; and between ranks with other experts.
LayerCalls expert_part_calls(const LayerForm& form, const LayerShare& share);
LayerCalls expert_row_calls(const LayerForm& form, const LayerShare& share);

}  // namespace trainctl
