#include "plan/generators/generators.h"
#include "plan/generators/stage_rows.h"

namespace trainctl {

std::vector<Action> schedule_no_pipelining(const ScheduleInput& input) {
  StageRows rows(input);
  const int ahead = input.legs.empty() ? 0 : 1;  // F beside the B of the micro-batch before it
  for (int newest = 0; newest < input.microbatches + ahead; ++newest) {
    if (newest < input.microbatches) {
      rows.fetch(newest, 0);
      rows.forward(newest, 0);
    }
    if (newest >= ahead) rows.backward(newest - ahead, 0);
  }
  return rows.finish();
}

}  // namespace trainctl
