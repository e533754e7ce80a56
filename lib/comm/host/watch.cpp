#include "comm/host/watch.h"

#include <pthread.h>

#include "base/log.h"

namespace trainctl {

namespace {
constexpr std::chrono::milliseconds pause{100};
constexpr double longer_seconds = 1;  // than the deadline, before a silent wait counts as a hang

std::chrono::steady_clock::duration duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}
}  // namespace

Watch::Watch(WatchOptions options) : options_(std::move(options)) {
  for (const WatchedRank& watched : options_.ranks) {
    stalls_.push_back({0, Patience(options_.deadline_seconds), options_.deadline_seconds});
    watched.activity->on_hang([this] { report(); });
  }
  thread_ = std::thread([this] { work(); });
  pthread_setname_np(thread_.native_handle(), "watch");
}

Watch::~Watch() {
  for (const WatchedRank& watched : options_.ranks) watched.activity->on_hang({});
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watch::report() {
  std::unique_lock lock(mutex_);
  asked_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, duration(speak_seconds), [this] { return reported_ || closing_; });
}

void Watch::let_others_speak() {
  std::unique_lock lock(mutex_);
  if (!asked_ || !options_.tell_others) return;
  changed_.wait_until(lock, reported_at_ + duration(speak_seconds), [] { return false; });
}

void Watch::work() {
  std::unique_lock lock(mutex_);
  bool ended = false;
  while (!closing_) {
    changed_.wait_for(lock, pause, [this] { return closing_ || (asked_ && !reported_); });
    const bool asked = asked_;
    const bool reported = reported_;
    const bool late = reported && leaving_.over();
    if (closing_) return;
    lock.unlock();
    const std::optional<Reason> found = reported ? std::nullopt : reason(asked);
    if (found) {
      write_report(found->ended);
      if (!found->told && options_.tell_others) options_.tell_others(found->ended);
      lock.lock();
      reported_ = true;
      reported_at_ = Clock::now();
      leaving_ = Patience(leave_seconds);
      changed_.notify_all();
      continue;
    }
    if (late && !ended && options_.end) options_.end();
    ended = ended || late;
    lock.lock();
  }
}

std::optional<Watch::Reason> Watch::reason(bool asked) {
  const std::optional<int> told = options_.is_told ? options_.is_told() : std::nullopt;
  if (told) return Reason{*told, true};
  const int ended = options_.ended_rank ? options_.ended_rank() : none;
  if (ended != none) return Reason{ended};
  return asked || hangs() ? std::optional<Reason>(Reason{}) : std::nullopt;
}

/// Looks at every rank once; also tells of those that have computed for long.
bool Watch::hangs() {
  bool any = false;
  for (std::size_t i = 0; i < stalls_.size(); ++i) {
    const WatchedRank& watched = options_.ranks[i];
    Stall& stall = stalls_[i];
    const std::uint64_t progress = watched.activity->progress();
    if (progress != stall.progress) {
      stall = {progress, Patience(options_.deadline_seconds), options_.deadline_seconds};
    }
    static_cast<void>(stall.patience.over());
    const double stalled = stall.patience.waited();
    if (watched.activity->waits()) {
      any = any || stalled >= options_.deadline_seconds + longer_seconds;
    } else if (stalled >= stall.next_told) {
      stall.next_told += options_.deadline_seconds;
      set_log_rank(watched.rank, options_.world_size);
      log_warning("nothing finished for long: " + line(watched, stalled));
    }
  }
  return any;
}

std::string Watch::line(const WatchedRank& watched, double stalled) const {
  return "rank " + std::to_string(watched.rank) + " (host " + options_.host + "), " +
         watched.activity->text(stalled, options_.describe_rank);
}

void Watch::write_report(int ended) {
  const std::string remarks = options_.remarks ? options_.remarks() : "";
  const std::string what = ended == none ? "hang: "
                                         : options_.describe_rank(ended) +
                                               " has ended before its work: killed or failed; ";
  for (std::size_t i = 0; i < stalls_.size(); ++i) {
    const WatchedRank& watched = options_.ranks[i];
    set_log_rank(watched.rank, options_.world_size);
    log_error(what + line(watched, stalls_[i].patience.waited()) + remarks);
  }
}

}  // namespace trainctl
