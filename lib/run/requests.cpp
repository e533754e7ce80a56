#include "run/requests.h"

#include <algorithm>

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

std::string agree_on_reason(Group& everyone) {
  const auto signals = gather_values(everyone, static_cast<double>(stop_signal()));
  const auto got = [](double signal) { return signal > 0; };
  const auto found = std::find_if(signals.begin(), signals.end(), got);
  if (found == signals.end()) return "";
  std::string reason = name_of_signal(static_cast<int>(*found));
  if (!std::all_of(signals.begin(), signals.end(), got)) {
    reason += " on rank " + std::to_string(found - signals.begin());
  }
  return reason;
}

}  // namespace trainctl
