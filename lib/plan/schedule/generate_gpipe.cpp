#include "plan/schedule/generator_rows.h"
#include "plan/schedule/generators.h"

namespace trainctl {

std::vector<Action> schedule_gpipe(const ScheduleInput& input) {
  // One group of all micro-batches, and no backward before the last forward.
  return chunked_rows(
      input, {.group_size = input.microbatches, .warmup = input.microbatches * input.chunks()});
}

}  // namespace trainctl
