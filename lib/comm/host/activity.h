// What one rank is doing. Its threads record it without locks or allocation; the watch (watch.h)
// reads it at any time from a separate thread. A world owns one per rank; groups record their waits
// in it, the engine its actions.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace trainctl {

class Activity;

/// The operation that one group, or its messages, is in: one at a time; operations that begin
/// meanwhile are not recorded.
class WaitNote {
 public:
  /// `ranks` are the group's members as ranks of the world.
  WaitNote(Activity& activity, std::string group, std::vector<int> ranks);
  ~WaitNote();
  WaitNote(const WaitNote&) = delete;
  WaitNote& operator=(const WaitNote&) = delete;

  /// `operation` is a literal; `number` its place among the group's calls, 0 for none. Returns
  /// false if another operation is recorded; then end() must not be called.
  bool begin(const char* operation, std::uint64_t number) noexcept;
  /// The missing ranks, as places in the group; only the first few are kept.
  void waits_for(std::span<const int> places) noexcept;
  /// A part of the operation is complete; the rest continues.
  void goes_on() noexcept;
  void end() noexcept;

 private:
  friend class Activity;
  static constexpr std::size_t most_named = 8;

  Activity& activity_;
  const std::string group_;
  const std::vector<int> ranks_;
  std::atomic<const char*> operation_{nullptr};
  std::atomic<std::uint64_t> number_{0};
  std::atomic<std::int64_t> since_{0};  // nanoseconds of the steady clock
  std::atomic<int> missing_count_{0};
  std::array<std::atomic<int>, most_named> missing_{};
};

class Activity {
 public:
  /// "F of micro-batch 0 ..." for an action that was started.
  using Describe = std::function<std::string(std::int64_t action)>;
  /// "rank 3 (host x, process 12)"
  using DescribeRank = std::function<std::string(int rank)>;

  /// How to name actions from now on; an empty function if their numbers have no meaning.
  void name_actions(Describe describe);
  /// In the training step. Actions are numbers from 0.
  void start_step() noexcept { step_.fetch_add(1, std::memory_order_relaxed); }
  void start(std::int64_t action) noexcept;
  void finish() noexcept;

  /// Grows whenever an action, an operation of a group or a part of one is complete.
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  /// Whether an operation of a group waits for missing ranks.
  bool waits() const;
  /// "step 3, B2[1,2), waits in all_gather 'tp' (call 9) for rank 1 (host x) for 3.0 s; last
  /// finished F3[0,3)". `stalled` is the time without progress.
  std::string text(double stalled, const DescribeRank& describe_rank) const;

  /// Called by a wait beyond its deadline, on its own thread, before it fails.
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

}  // namespace trainctl
