#include "plan/schedule.h"

namespace trainctl {

std::vector<Action> schedule_no_pipelining(const ScheduleInput& input) {
  std::vector<Action> rows;
  rows.reserve(static_cast<std::size_t>(input.microbatches) * 4 + 1);
  for (int microbatch = 0; microbatch < input.microbatches; ++microbatch) {
    const auto add = [&](ActionKind kind, int end) {
      rows.push_back(Action{.kind = kind, .microbatch = microbatch, .begin = 0, .end = end});
    };
    add(ActionKind::fetch, 0);
    add(ActionKind::forward, input.units);
    add(ActionKind::backward_input, input.units);
    add(ActionKind::backward_weight, input.units);
  }
  rows.push_back(Action{.kind = ActionKind::step});
  return rows;
}

}  // namespace trainctl
