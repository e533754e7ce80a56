#include "comm/host/activity.h"

#include <algorithm>
#include <cstdio>

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
  const std::size_t named = std::min(places.size(), most_named);
  for (std::size_t i = 0; i < named; ++i) {
    missing_[i].store(ranks_[static_cast<std::size_t>(places[i])], relaxed);
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
  return describe_ ? describe_(action) : "action " + std::to_string(action);
}

/// "" when nothing is noted.
std::string Activity::text_of(const WaitNote& note, const DescribeRank& describe_rank) {
  const char* operation = note.operation_.load(std::memory_order_acquire);
  if (operation == nullptr) return "";
  std::string text = std::string(operation) + " '" + note.group_ + "'";
  const std::uint64_t number = note.number_.load(relaxed);
  if (number > 0) text += " (call " + std::to_string(number) + ")";
  const auto missing =
      static_cast<std::size_t>(note.missing_count_.load(std::memory_order_acquire));
  const std::size_t named = std::min(missing, WaitNote::most_named);
  for (std::size_t i = 0; i < named; ++i) {
    text += (i == 0 ? " for " : ", ") + describe_rank(note.missing_[i].load(relaxed));
  }
  if (missing > named) text += " and " + std::to_string(missing - named) + " more";
  const double seconds = static_cast<double>(now() - note.since_.load(relaxed)) * 1e-9;
  return text + (missing > 0 ? ", " : " since ") + seconds_text(seconds);
}

std::string Activity::text(double stalled, const DescribeRank& describe_rank) const {
  const std::lock_guard lock(mutex_);
  const std::int64_t step = step_.load(relaxed);
  const std::int64_t action = action_.load(relaxed);
  const std::int64_t finished = finished_.load(relaxed);
  std::string text = step == 0 ? "before the first step" : "step " + std::to_string(step);
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

}  // namespace trainctl
