#include <algorithm>

#include "plan/schedule/generator_rows.h"
#include "plan/schedule/generators.h"

namespace trainctl {

std::vector<Action> schedule_zb_h1(const ScheduleInput& input) {
  if (input.chunks() > 1) {
    return chunked_rows(input, {.group_size = input.group_size,
                                .warmup = interleaved_warmup(input),
                                .delay = input.stage});
  }
  const int warmup = std::min(input.microbatches, input.stages - input.stage - 1);
  StageRows rows(input);
  rows.fetch(0, 0);
  rows.receive_forward(0, 0);
  for (int microbatch = 0; microbatch < warmup; ++microbatch) {
    rows.forward(microbatch, 0);
    const bool more = microbatch + 1 < input.microbatches;
    if (more) rows.fetch(microbatch + 1, 0);
    rows.send_forward(microbatch, 0);
    if (more) rows.receive_forward(microbatch + 1, 0);
  }
  // Later stages have fewer micro-batches between F and B, so they may put off as many more W: the
  // sum is the first stage's, and the W left over fill the wait for its last backwards.
  int weights = 0;
  for (int oldest = 0; oldest < input.microbatches; ++oldest) {
    const int newest = warmup + oldest;
    if (newest < input.microbatches) {
      rows.forward(newest, 0);
      rows.send_forward(newest, 0);
    }
    rows.receive_backward(oldest, 0);
    rows.backward_input(oldest, 0);
    rows.send_backward(oldest, 0);
    if (oldest >= input.stage) rows.backward_weight(weights++, 0);
    if (newest + 1 >= input.microbatches) continue;
    rows.fetch(newest + 1, 0);
    rows.receive_forward(newest + 1, 0);
  }
  while (weights < input.microbatches) rows.backward_weight(weights++, 0);
  return rows.finish();
}

}  // namespace trainctl
