// The embedding and the head: what they exchange.
#pragma once

#include "plan/model/exchange.h"

namespace trainctl {

/// From the look-up to a residual stream of `elements`, which may be left out where no size is
/// asked for.
Exchange embedding_exchange(Layout stream, SplitBy split, std::int64_t elements = 0);
/// From the residual stream to the logits. W needs it once more where the head's weight gradient is
/// deferred.
Exchange head_exchange(Layout stream, SplitBy split, std::int64_t elements = 0);
/// Over `ranks` ranks with a part of the vocabulary each, `chunk` tokens at a time: of each token
/// the largest logit, the sum of exponentials and the label's logit.
LayerCalls head_calls(const EndShape& local, std::int64_t chunk, std::int64_t ranks, SplitBy split);

}  // namespace trainctl
