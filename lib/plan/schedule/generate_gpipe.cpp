#include "plan/schedule/generator_rows.h"

namespace trainctl {

std::vector<Action> schedule_gpipe(const ScheduleInput& input) {
  // One group of all micro-batches, and no backward before the last forward.
  return chunked_rows(input, input.microbatches, warmup_forwards(PipelineScheduler::gpipe, input));
}

}  // namespace trainctl
