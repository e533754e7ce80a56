// How the host waits for a device, which it has to ask: often enough to see the end at once, and
// seldom enough to leave the core to others while there is long to wait.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace trainctl {

/// Of one stream. Most of its waits are alike: those for the end of a step.
class WaitPace {
 public:
  /// Seconds to sleep before the next question, of a wait that has lasted `waited` seconds; 0: ask
  /// again at once. It sleeps until nine tenths of what the shortest of the last waits took, and
  /// asks busily around that. Later, and without one to go by, it sleeps 1/64 of what has passed,
  /// so that it sees the end less than 2 % late.
  double pause(double waited) const {
    const double expected = *std::min_element(last_.begin(), last_.end());
    if (waited < early * expected) return std::min(early * expected - waited, longest_pause);
    if (waited < late * expected) return 0;
    const double part = waited / 64;
    return part < shortest_pause ? 0 : std::min(part, longest_pause);
  }
  /// The seconds that the wait for a ticket has lasted: it may be waited for in several parts, with
  /// a look at other ranks between them.
  double begin(std::uint64_t ticket) {
    if (ticket != ticket_) waited_ = 0;
    ticket_ = ticket;
    return waited_;
  }
  /// A part of it is over, after so many seconds in all; `ended`: the last.
  void end(double waited, bool ended) {
    waited_ = waited;
    if (!ended) return;
    last_[next_] = waited;
    next_ = (next_ + 1) % last_.size();
  }

 private:
  static constexpr double early = 0.9, late = 1.1;
  static constexpr double shortest_pause = 50e-6;  // of what the system can sleep
  static constexpr double longest_pause = 0.05;    // looks at the deadline in between

  // Waits within a step are shorter than those for its end: the shortest of all decides.
  std::array<double, 4> last_{};
  std::size_t next_ = 0;
  std::uint64_t ticket_ = 0;
  double waited_ = 0;
};

/// Waits until reached() holds, which is so from some time on; false: `patience` (patience.h) was
/// over before. sleep(seconds) sleeps, with 0 it lets others run.
template <class Patience, class Reached, class Sleep>
bool wait_at_pace(WaitPace& pace, std::uint64_t ticket, Patience& patience, const Reached& reached,
                  const Sleep& sleep) {
  bool ended = reached();
  if (ended) return true;  // which says nothing about the next
  const double before = pace.begin(ticket);
  while (!ended && !patience.over()) {
    sleep(std::min(pace.pause(before + patience.waited()), patience.left()));
    ended = reached();
  }
  pace.end(before + patience.waited(), ended);
  return ended;
}

}  // namespace trainctl
