// The plan of a decoder: the forward pass of a few tokens of one sequence.
#pragma once

#include "plan/plan.h"

namespace trainctl {

/// The layout of `plan` for passes of one sequence with up to `tokens` tokens, of a text of up to
/// `positions` (or as many as the model has): its own activations, laid out for forward_actions.
/// Tensor parallelism works as in training, but the stream and operators are not split by token,
/// since there are too few. Rows of whole steps are gone.
Plan decoding_plan(const Plan& plan, std::int64_t tokens, std::int64_t positions);

}  // namespace trainctl
