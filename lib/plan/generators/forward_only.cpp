#include "plan/generators/generators.h"
#include "plan/generators/stage_rows.h"

namespace trainctl {

std::vector<Action> schedule_forward_only(const ScheduleInput& input) {
  StageRows rows(input);
  for (int chunk = 0; chunk < input.chunks(); ++chunk) {
    rows.fetch(0, chunk);
    rows.receive_forward(0, chunk);
    rows.wait_forward(0, chunk);
    rows.forward(0, chunk);
    rows.send_forward(0, chunk);
  }
  return rows.take();
}

}  // namespace trainctl
