// What a model's routers decide by.
#pragma once

#include "ops/router.h"
#include "plan/tables/model.h"

namespace trainctl {

/// What decides about tokens, and the losses beside the main one (ops/router.h).
struct RouterRule {
  std::int64_t group = 0;  // tokens of a routing group; 0: all of the pass
  RouterCapacity capacity{};
  RouterChoice choice{};
  float balance_factor = 0;
  float z_factor = 0;
};

RouterRule router_rule(const ModelShape& model);

}  // namespace trainctl
