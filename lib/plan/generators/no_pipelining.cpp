#include "plan/generators/generators.h"
#include "plan/generators/stage_rows.h"

namespace trainctl {

std::vector<Action> schedule_no_pipelining(const ScheduleInput& input) {
  StageRows rows(input);
  for (int microbatch = 0; microbatch < input.microbatches; ++microbatch) {
    rows.fetch(microbatch, 0);
    rows.forward(microbatch, 0);
    rows.backward(microbatch, 0);
  }
  return rows.finish();
}

}  // namespace trainctl
