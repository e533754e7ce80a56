// hooks.timers in a run: what the ranks spent in each phase, every log.every steps.
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.h"
#include "engine/timers.h"

namespace trainctl {

class TimerReports {
 public:
  explicit TimerReports(const Config& config);

  /// Adds the last step of `trace`, which is step number `step` of the run. After every
  /// log.every-th step and the last one of the session, the means since the report before; else
  /// empty. Collective over `everyone` where it is not.
  std::vector<TimerRange> after_step(const Trace& trace, std::int64_t step, bool last,
                                     Group& everyone);
  /// Lines for people about what was reported last.
  std::vector<std::string> lines(const std::vector<TimerRange>& timers) const;

 private:
  bool on_;
  std::int64_t every_;
  TimerSums sums_;
  std::int64_t first_ = 0;  // steps of the last report
  std::int64_t last_ = 0;
};

}  // namespace trainctl
