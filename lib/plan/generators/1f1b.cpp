#include <algorithm>

#include "plan/generators/generators.h"
#include "plan/generators/stage_rows.h"

namespace trainctl {

std::vector<Action> schedule_1f1b(const ScheduleInput& input) {
  if (input.chunks() > 1 || !input.legs.empty()) {
    return chunked_rows(input,
                        {.group_size = input.group_size, .warmup = interleaved_warmup(input)});
  }
  const int warmup = std::min(input.microbatches, input.stages - input.stage - 1);
  const int steady = input.microbatches - warmup;
  StageRows rows(input);
  rows.warm_up(warmup);
  for (int oldest = 0; oldest < input.microbatches; ++oldest) {
    const int newest = warmup + oldest;
    if (oldest < steady) {
      rows.forward(newest, 0);
      rows.send_forward(newest, 0);
    }
    rows.receive_backward(oldest, 0);
    rows.backward(oldest, 0);
    // Data is fetched before the batch of messages, which it would cut in two.
    const bool more = newest + 1 < input.microbatches;
    if (more) rows.fetch(newest + 1, 0);
    rows.send_backward(oldest, 0);
    rows.weight_behind_send(oldest, 0);
    if (more) rows.receive_forward(newest + 1, 0);
  }
  return rows.finish();
}

}  // namespace trainctl
