#include "device/own_events.h"

#include <limits>

namespace trainctl {

/// Nothing is enqueued on such a stream.
const StreamApi OwnEvents::api{
    .create = nullptr,
    .destroy = nullptr,
    .enqueue = nullptr,
    .copy = nullptr,
    .zero = nullptr,
    .record = nullptr,
    .wait = nullptr,
    .wait_host =
        [](void* owner, std::uint64_t ticket, double seconds) {
          return static_cast<OwnEvents*>(owner)->wait(ticket, seconds);
        },
    .reached = [](void* owner,
                  std::uint64_t ticket) { return static_cast<OwnEvents*>(owner)->reached(ticket); },
    .native = nullptr,
};

Event OwnEvents::behind(std::uint64_t ticket) {
  wait(ticket, std::numeric_limits<double>::infinity());
  return {};
}

OwnEvents::OwnEvents(std::string name) : stream_(DeviceKind::cpu, std::move(name), api, this) {}

}  // namespace trainctl
