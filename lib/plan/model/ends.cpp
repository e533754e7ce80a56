#include "plan/model/ends.h"

#include "base/round_up.h"

namespace trainctl {

Exchange embedding_exchange(Layout stream, SplitBy split, std::int64_t elements) {
  return {.cargo = Cargo::embedding,
          .from = inside_of(split).makes,
          .to = stream,
          .elements = elements};
}

Exchange head_exchange(Layout stream, SplitBy split, std::int64_t elements) {
  return {.cargo = Cargo::head,
          .from = stream,
          .to = inside_of(split).reads,
          .elements = elements,
          .again_in_weight = true};
}

LayerCalls head_calls(const EndShape& local, std::int64_t chunk, std::int64_t ranks,
                      SplitBy split) {
  if (split != SplitBy::features) return {};
  return {{.cargo = Cargo::head_statistics,
           .group = tensor_group,
           .ranks = ranks,
           .rows = 3 * ranks * local.head_rows,
           .chunks = divide_up(local.head_rows, chunk)}};
}

}  // namespace trainctl
