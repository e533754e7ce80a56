#include "plan/generators/generators.h"

#include "base/at.h"

namespace trainctl {

std::vector<Action> make_schedule(PipelineScheduler scheduler, const ScheduleInput& input) {
  if (input.stages <= 1) return schedule_no_pipelining(input);
  return at(generators, scheduler)(input);
}

}  // namespace trainctl
