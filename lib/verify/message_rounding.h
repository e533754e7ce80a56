// The rounding in messages between stages where their dtype is not the layers': it rounds the
// residual stream and its gradient, at the cuts between stages. A single rank that rounds there in
// the same way computes the same values as the stages.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <set>

#include "base/dtype.h"
#include "engine/engine_input.h"
#include "plan/plan.h"

namespace trainctl {

struct MessageRounding {
  std::set<int> cuts;  // the units whose output is sent to another stage; empty: nothing is rounded
  DType dtype = DType::f32;
  std::int64_t factor = 1;  // of the gradients that are rounded: GradientRule::factor
  auto operator<=>(const MessageRounding&) const = default;
};

/// Nothing where messages keep every number of the layers: in the layers' own dtype, and in fp32.
MessageRounding message_rounding(const Plan& plan);

/// For a single rank: rounds as the messages would, and then calls `hooks`. `now`: what they round
/// when a hook is called; the rounding must outlive that call.
Hooks with_rounding(Hooks hooks, const MessageRounding& rounding);
Hooks with_rounding(Hooks hooks, std::function<const MessageRounding&()> now);

}  // namespace trainctl
