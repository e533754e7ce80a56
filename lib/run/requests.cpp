#include "run/requests.h"

#include "run/directory/signals.h"

namespace trainctl {

Requests::Requests(bool first, double every_minutes)
    : interval_(60 * every_minutes), has_clock_(first && every_minutes > 0) {}

Request Requests::ask() const {
  const int signal = stop_signal();
  if (signal != 0) return asks_to_requeue(signal) ? Request::requeue : Request::interrupt;
  return has_clock_ && Clock::now() - last_ >= interval_ ? Request::save : Request::none;
}

void Requests::restart_clock() { last_ = Clock::now(); }

}  // namespace trainctl
