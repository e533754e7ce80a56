#include "plan/generators/generators.h"
#include "plan/generators/stage_rows.h"

namespace trainctl {

std::vector<Action> schedule_gpipe(const ScheduleInput& input) {
  // One group of all micro-batches, and no backward before the last forward.
  return chunked_rows(
      input, {.group_size = input.microbatches, .warmup = input.microbatches * input.chunks()});
}

}  // namespace trainctl
