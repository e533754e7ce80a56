// What a rank wants after a step. The ranks act on the greatest wish, so that all save and stop at
// the same step.
#pragma once

#include <chrono>
#include <string>

#include "comm/group.h"

namespace trainctl {

enum class Request : int {
  none,
  save,       // the clock says so
  requeue,    // a scheduler's signal: save and stop
  interrupt,  // a person's: the same, with another exit code
};

class Requests {
 public:
  /// `first`: this rank is the one whose clock counts. `every_minutes` 0: no clock.
  Requests(bool first, double every_minutes);
  /// Asked after each step.
  Request ask() const;
  /// A save has begun.
  void restart_clock();

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double> interval_;
  bool has_clock_;
  Clock::time_point last_ = Clock::now();
};

/// Which signal stopped the ranks: "SIGTERM", or "SIGUSR1 on rank 3" where not every rank had one;
/// empty without a signal. Collective.
std::string agree_on_reason(Group& everyone);

}  // namespace trainctl
