#include "run/records/timer_reports.h"

#include "base/units.h"
#include "formats/print/text.h"

namespace trainctl {

TimerReports::TimerReports(const Config& config)
    : on_(config.hooks.timers),
      every_(config.log.every),
      sums_(static_cast<int>(config.log.timer_level)) {}

std::vector<TimerRange> TimerReports::after_step(const Trace& trace, std::int64_t step, bool last,
                                                 Group& everyone) {
  if (!on_) return {};
  sums_.add(trace);
  if (!last && step % every_ != 0) return {};
  first_ = step - sums_.steps() + 1;
  last_ = step;
  return sums_.take(everyone);
}

std::vector<std::string> TimerReports::lines(const std::vector<TimerRange>& timers) const {
  if (timers.empty()) return {};
  const std::string last = std::to_string(last_);
  const std::string steps =
      first_ == last_ ? "step " + last : "steps " + std::to_string(first_) + " to " + last;
  std::vector<std::string> lines{"seconds per step in " + steps + ", least and most of all ranks"};
  for (const TimerRange& timer : timers) {
    lines.push_back("  " + padded(std::string(timer.name), 27) +
                    padded_left(format_seconds(timer.least), 10) + " .. " +
                    format_seconds(timer.most));
  }
  return lines;
}

}  // namespace trainctl
