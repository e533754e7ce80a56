// The activity of each rank of a process, and the watch that reports it when a rank hangs.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "device/wait.h"

namespace trainctl {

class Activity;

/// Records the current operation of a group, or of its messages: one at a time; operations that
/// begin meanwhile are not recorded.
class WaitNote {
 public:
  /// `ranks` are the group's members as ranks of the world.
  WaitNote(Activity& activity, std::string group, std::vector<int> ranks);
  ~WaitNote();
  WaitNote(const WaitNote&) = delete;
  WaitNote& operator=(const WaitNote&) = delete;

  /// `operation` is a literal; `number` its place among the group's calls, 0 if it has none.
  /// Returns false if another operation is recorded; then end() must not be called.
  bool begin(const char* operation, std::uint64_t number) noexcept;
  /// Records the missing ranks, as places in the group; only the first few are kept.
  void waits_for(std::span<const int> places) noexcept;
  /// A part of the operation is complete; the rest continues.
  void goes_on() noexcept;
  void end() noexcept;

 private:
  friend class Activity;
  static constexpr std::size_t max_named = 8;

  Activity& activity_;
  const std::string group_;
  const std::vector<int> ranks_;
  std::atomic<const char*> operation_{nullptr};
  std::atomic<std::uint64_t> number_{0};
  std::atomic<std::int64_t> since_{0};  // nanoseconds of the steady clock
  std::atomic<int> missing_count_{0};
  std::array<std::atomic<int>, max_named> missing_{};
};

/// The present activity of one rank. Its threads record it without locks or allocation; the watch
/// reads it at any time from a separate thread. A world owns one per rank; groups record their
/// waits in it, the engine its actions.
class Activity {
 public:
  /// The text of an action, for example "F of micro-batch 0 ...".
  using Describe = std::function<std::string(std::int64_t action)>;
  /// The name of a rank, for example "rank 3 (host x, process 12)".
  using DescribeRank = std::function<std::string(int rank)>;

  /// Sets the names of actions from now on; an empty function if their numbers have no meaning.
  void name_actions(Describe describe);
  /// Called in the training step. Actions are numbers from 0.
  void start_step() noexcept { step_.fetch_add(1, std::memory_order_relaxed); }
  void start(std::int64_t action) noexcept;
  void finish() noexcept;

  /// Grows whenever an action, an operation of a group or a part of one is complete.
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  /// Whether an operation of a group waits for missing ranks.
  bool waits() const;
  /// For example "step 3, B2[1,2), waits in all_gather 'tp' (call 9) for rank 1 (host x) for 3.0 s;
  /// last finished F3[0,3)". `stalled` is the time without progress.
  std::string text(double stalled, const DescribeRank& describe_rank) const;

  /// Reports a hang. Called by a wait beyond its deadline, on its own thread, before it throws.
  void tell_hang() const;
  void on_hang(std::function<void()> tell);

 private:
  friend class WaitNote;
  static constexpr std::int64_t none = -1;
  static std::int64_t now() noexcept;
  std::string name_of_action(std::int64_t action) const;
  static std::string text_of(const WaitNote& note, const DescribeRank& describe_rank);

  std::atomic<std::int64_t> step_{0};
  std::atomic<std::int64_t> action_{none};
  std::atomic<std::int64_t> finished_{none};
  std::atomic<std::uint64_t> progress_{0};
  // Guards the following members, which change only outside the training step.
  mutable std::mutex mutex_;
  std::vector<const WaitNote*> notes_;
  Describe describe_;
  std::function<void()> tell_;
};

// Reports the activity of every rank of this process when a rank or another process hangs, or when
// another process has ended: one line per rank, from a separate thread, so also when a rank is
// stuck in a kernel or in MPI.

struct WatchOptions {
  double deadline_seconds = 300;
  int world_size = 1;
  std::string host;
  int first_rank = 0;                   // first rank of this process; its ranks are consecutive
  std::vector<Activity*> activities{};  // one for each rank of this process
  Activity::DescribeRank describe_rank{};
  std::function<std::string()> remarks{};  // text added to each line; may be empty
  /// Returns a rank whose process has ended, or `none`; called often each second. May be empty.
  std::function<int()> ended_rank{};
  /// tell_others() tells the other processes to report as well; is_told(), called several times per
  /// second, returns whether one of these processes reports. Both name the rank that has ended, or
  /// `none` for a hang. Called on the watch's thread; both may be empty.
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

  /// Writes the report. The first call returns after all lines, later calls return at once.
  void report();
  /// After a report, waits `speak_seconds` for the reports of other processes.
  void let_others_speak();

 private:
  using Clock = std::chrono::steady_clock;
  struct Stall;
  struct Reason;
  void work();
  bool hangs();
  /// The reason to report now, if there is one. `asked`: a wait of this process wants a report.
  std::optional<Reason> reason(bool asked);
  void write_report(int ended);
  int rank_at(std::size_t place) const { return options_.first_rank + static_cast<int>(place); }
  std::string line(std::size_t place, double stalled) const;

  const WatchOptions options_;
  std::vector<Stall> stalls_;  // by place in options_.activities; only the watch's thread uses it
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false;
  bool reported_ = false;
  bool closing_ = false;
  Clock::time_point reported_at_;
  WaitLimit leaving_{leave_seconds};  // used by the watch's thread after the report
  std::thread thread_;
};

}  // namespace trainctl
