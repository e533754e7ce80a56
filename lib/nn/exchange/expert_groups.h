// The ranks that share the experts of a stage.
#pragma once

#include "comm/group.h"
#include "ops/router.h"

namespace trainctl {

struct ExpertGroups {
  Group* ep = nullptr;       // of those that hold other experts; null: this one holds all
  Group* routers = nullptr;  // that route the tokens of all of them alike; null: one rank
  // Each sends the tokens of its own part of the residual stream (experts_take_stream of
  // plan/tables/local_shape.h).
  bool by_stream = false;
  RowOrder order{};  // of the routers' tokens
  // In so many chunks rows go to experts of other ranks and back, each beside the products of
  // another, on this stream; null: they are waited for.
  std::int64_t chunks = 1;
  Stream* beside = nullptr;
};

}  // namespace trainctl
