// Reports what every rank of this process is doing when one of them, or another process, hangs, or
// when another process has ended: one line per rank, from a separate thread, so also when a rank is
// stuck in a kernel or in MPI.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/host/activity.h"
#include "device/patience.h"

namespace trainctl {

struct WatchedRank {
  int rank = 0;
  Activity* activity = nullptr;
};

struct WatchOptions {
  double deadline_seconds = 300;
  int world_size = 1;
  std::string host;
  std::vector<WatchedRank> ranks{};  // of this process
  Activity::DescribeRank describe_rank{};
  std::function<std::string()> remarks{};  // added to each line; may be empty
  /// Asked several times per second: a rank whose process has ended, or `none`. May be empty.
  std::function<int()> ended_rank{};
  /// The first tells the other processes to report as well; the second is asked, several times per
  /// second, whether one of them reports. Both give the rank that has ended, or `none` for a hang.
  /// Called on the watch's thread; both may be empty.
  std::function<void(int ended)> tell_others{};
  std::function<std::optional<int>()> is_told{};
  /// Ends the process, on the watch's thread, if it still runs `leave_seconds` after the report.
  std::function<void()> end{};
};

/// A hang is a wait for other ranks beyond the deadline. The wait reports it, or, if it cannot, the
/// watch does when the rank has finished nothing for a second longer. A rank that only computes for
/// that long is reported, but nothing ends.
class Watch {
 public:
  static constexpr double leave_seconds = 3.5;
  static constexpr double speak_seconds = 2;
  static constexpr int none = -1;  // no rank

  explicit Watch(WatchOptions options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// The first call returns after the lines are written; later calls return at once.
  void report();
  /// After a report, gives other processes `speak_seconds` for theirs.
  void let_others_speak();

 private:
  using Clock = std::chrono::steady_clock;
  struct Stall {
    std::uint64_t progress = 0;
    Patience patience;
    double next_told = 0;
  };

  struct Reason {
    int ended = none;
    bool told = false;  // by another process
  };

  void work();
  bool hangs();
  /// Why to report now, if there is a reason. `asked`: a wait of this process asks for it.
  std::optional<Reason> reason(bool asked);
  void write_report(int ended);
  std::string line(const WatchedRank& rank, double stalled) const;

  const WatchOptions options_;
  std::vector<Stall> stalls_;  // by place in options_.ranks; of the watch's thread
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false;
  bool reported_ = false;
  bool closing_ = false;
  Clock::time_point reported_at_;
  Patience leaving_{leave_seconds};  // of the watch's thread, from the report on
  std::thread thread_;
};

}  // namespace trainctl
