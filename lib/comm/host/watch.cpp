#include "comm/host/watch.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>

#include "base/at.h"
#include "base/log.h"
#include "base/text.h"

namespace trainctl {

namespace {
constexpr auto relaxed = std::memory_order_relaxed;

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}
}  // namespace

WaitNote::WaitNote(Activity& activity, std::string group, std::vector<int> ranks)
    : activity_(activity), group_(std::move(group)), ranks_(std::move(ranks)) {
  const std::lock_guard lock(activity_.mutex_);
  activity_.notes_.push_back(this);
}

WaitNote::~WaitNote() {
  const std::lock_guard lock(activity_.mutex_);
  std::erase(activity_.notes_, this);
}

bool WaitNote::begin(const char* operation, std::uint64_t number) noexcept {
  if (operation_.load(relaxed) != nullptr) return false;
  number_.store(number, relaxed);
  since_.store(Activity::now(), relaxed);
  missing_count_.store(0, relaxed);
  const char* free = nullptr;
  return operation_.compare_exchange_strong(free, operation, std::memory_order_release, relaxed);
}

void WaitNote::waits_for(std::span<const int> places) noexcept {
  const std::size_t named = std::min(places.size(), max_named);
  for (std::size_t i = 0; i < named; ++i) {
    missing_[i].store(at(ranks_, places[i]), relaxed);
  }
  missing_count_.store(static_cast<int>(places.size()), std::memory_order_release);
}

void WaitNote::goes_on() noexcept {
  missing_count_.store(0, relaxed);
  since_.store(Activity::now(), relaxed);
  activity_.progress_.fetch_add(1, relaxed);
}

void WaitNote::end() noexcept {
  missing_count_.store(0, relaxed);
  operation_.store(nullptr, std::memory_order_release);
  activity_.progress_.fetch_add(1, relaxed);
}

std::int64_t Activity::now() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void Activity::name_actions(Describe describe) {
  const std::lock_guard lock(mutex_);
  action_.store(none, relaxed);
  finished_.store(none, relaxed);
  describe_ = std::move(describe);
}

void Activity::start(std::int64_t action) noexcept { action_.store(action, relaxed); }

void Activity::finish() noexcept {
  finished_.store(action_.exchange(none, relaxed), relaxed);
  progress_.fetch_add(1, relaxed);
}

bool Activity::waits() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(notes_, [](const WaitNote* note) {
    return note->operation_.load(relaxed) != nullptr && note->missing_count_.load(relaxed) > 0;
  });
}

std::string Activity::name_of_action(std::int64_t action) const {
  return describe_ ? describe_(action) : formatted("action {}", action);
}

/// The text of a recorded wait; "" if nothing is recorded.
std::string Activity::text_of(const WaitNote& note, const DescribeRank& describe_rank) {
  const char* operation = note.operation_.load(std::memory_order_acquire);
  if (operation == nullptr) return "";
  std::string text = std::string(operation) + " '" + note.group_ + "'";
  const std::uint64_t number = note.number_.load(relaxed);
  if (number > 0) text += formatted(" (call {})", number);
  const auto missing =
      static_cast<std::size_t>(note.missing_count_.load(std::memory_order_acquire));
  const std::size_t named = std::min(missing, WaitNote::max_named);
  for (std::size_t i = 0; i < named; ++i) {
    text += (i == 0 ? " for " : ", ") + describe_rank(note.missing_[i].load(relaxed));
  }
  if (missing > named) text += formatted(" and {} more", missing - named);
  const double seconds = static_cast<double>(now() - note.since_.load(relaxed)) * 1e-9;
  return text + (missing > 0 ? ", " : " since ") + seconds_text(seconds);
}

std::string Activity::text(double stalled, const DescribeRank& describe_rank) const {
  const std::lock_guard lock(mutex_);
  const std::int64_t step = step_.load(relaxed);
  const std::int64_t action = action_.load(relaxed);
  const std::int64_t finished = finished_.load(relaxed);
  std::string text = step == 0 ? "before the first step" : formatted("step {}", step);
  if (action != none) text += ", " + name_of_action(action);
  std::string waits;
  for (const WaitNote* note : notes_) {
    const std::string wait = text_of(*note, describe_rank);
    if (!wait.empty()) waits += (waits.empty() ? ": waits in " : ", and in ") + wait;
  }
  text += waits.empty() ? ": computes, " + seconds_text(stalled) : waits;
  if (finished != none) text += "; last finished: " + name_of_action(finished);
  return text;
}

void Activity::on_hang(std::function<void()> tell) {
  const std::lock_guard lock(mutex_);
  tell_ = std::move(tell);
}

void Activity::tell_hang() const {
  std::function<void()> tell;
  {
    const std::lock_guard lock(mutex_);
    tell = tell_;
  }
  if (tell) tell();
}

namespace {
constexpr std::chrono::milliseconds pause{100};
constexpr double longer_seconds = 1;  // beyond the deadline, before a silent wait counts as a hang

std::chrono::steady_clock::duration duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}
}  // namespace

struct Watch::Stall {
  std::uint64_t progress = 0;
  WaitLimit patience;
  double next_told = 0;
};

struct Watch::Reason {
  int ended = none;
  bool told = false;  // asked for by another process
};

Watch::Watch(WatchOptions options) : options_(std::move(options)) {
  for (Activity* activity : options_.activities) {
    stalls_.push_back({0, WaitLimit(options_.deadline_seconds), options_.deadline_seconds});
    activity->on_hang([this] { report(); });
  }
  thread_ = std::thread([this] { work(); });
  pthread_setname_np(thread_.native_handle(), "watch");
}

Watch::~Watch() {
  for (Activity* activity : options_.activities) activity->on_hang({});
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
      leaving_ = WaitLimit(leave_seconds);
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

/// Checks every rank once for a hang; also logs ranks that have computed for a long time.
bool Watch::hangs() {
  bool any = false;
  for (std::size_t i = 0; i < stalls_.size(); ++i) {
    const Activity& activity = *options_.activities[i];
    Stall& stall = stalls_[i];
    const std::uint64_t progress = activity.progress();
    if (progress != stall.progress) {
      stall = {progress, WaitLimit(options_.deadline_seconds), options_.deadline_seconds};
    }
    static_cast<void>(stall.patience.over());
    const double stalled = stall.patience.waited();
    if (activity.waits()) {
      any = any || stalled >= options_.deadline_seconds + longer_seconds;
    } else if (stalled >= stall.next_told) {
      stall.next_told += options_.deadline_seconds;
      set_log_rank(rank_at(i), options_.world_size);
      log_warning("nothing finished for long: " + line(i, stalled));
    }
  }
  return any;
}

std::string Watch::line(std::size_t place, double stalled) const {
  return formatted("rank {} (host {}), {}", rank_at(place), options_.host,
                   options_.activities[place]->text(stalled, options_.describe_rank));
}

void Watch::write_report(int ended) {
  const std::string remarks = options_.remarks ? options_.remarks() : "";
  const std::string what = ended == none ? "hang: "
                                         : options_.describe_rank(ended) +
                                               " has ended before its work: killed or failed; ";
  for (std::size_t i = 0; i < stalls_.size(); ++i) {
    set_log_rank(rank_at(i), options_.world_size);
    log_error(what + line(i, stalls_[i].patience.waited()) + remarks);
  }
}

}  // namespace trainctl
