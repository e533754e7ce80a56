// The ranks that share the experts of a stage.
#pragma once

#include "comm/group.h"
#include "ops/router.h"

namespace trainctl {

struct ExpertGroups {
  Group* ep = nullptr;     // that hold other experts; null: this one holds all
  Group* parts = nullptr;  // that hold a part of the same experts each and get other tokens; null:
                           // one rank
  Group* routers = nullptr;  // that route the tokens of all of them alike; null: one rank
  bool adds_bias = true;     // to what experts give: the first of those with parts of them
  // Tensor-parallel ranks send their shares of the tokens (ExchangeRule of plan/tables/layout.h):
  // with by_stream those of the residual stream, or a slice each of those that `slices` have; null:
  // all.
  bool by_stream = false;
  Group* slices = nullptr;
  // Numbers of rows travel while rows do: of the same ranks as `ep` and `parts`, which they are
  // where a pass waits for its rows.
  Group* ep_counts = nullptr;
  Group* parts_counts = nullptr;
  RowOrder order{};  // of the routers' tokens
  // In so many chunks rows go to experts of other ranks and back, each beside the products of
  // another, on this stream; null: they are waited for.
  std::int64_t chunks = 1;
  Stream* beside = nullptr;
};

}  // namespace trainctl
