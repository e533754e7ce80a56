// One block: its norms, attention and its feed-forward layer.
#pragma once

#include "plan/model/exchange.h"
#include "plan/model/form.h"
#include "plan/model/product.h"

namespace trainctl {

/// In the order in which the forward pass makes them.
Products block_products(const LayerForm& form, const LocalShape& local);

/// Between the residual stream and the feed-forward layer, of either kind.
Exchanges feed_forward_exchanges(const LayerForm& form, const LayerShare& share);

/// Over tp, in R: the block's input, of which each rank has kept a slice (BlockForm::slices_input).
LayerCall sliced_input_call(const LayerForm& form, const LayerShare& share);

/// The sizes of a rank that has a whole block and `tokens` tokens.
LocalShape whole_shape(const LayerForm& form, std::int64_t tokens);

}  // namespace trainctl
