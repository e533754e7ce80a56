#include "progress_bar.h"

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "base/units.h"
#include "output.h"

namespace trainctl {

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)),
      live_(stderr_is_terminal()),
      start_(Clock::now()),
      shown_(Clock::now()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\n", stderr);
}

std::string ProgressBar::line(std::int64_t done, std::int64_t total, double seconds) const {
  constexpr int width = 30;
  const double share =
      total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1.0;
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0.0;
  std::string text = what_ + " ";
  if (live_) {
    const int filled = static_cast<int>(share * width);
    text += "[" + std::string(static_cast<std::size_t>(filled), '#') +
            std::string(static_cast<std::size_t>(width - filled), '.') + "] ";
  }
  text += std::to_string(static_cast<int>(share * 100)) + " %, " + format_bytes(done) + " of " +
          format_bytes(total) + ", " + format_bytes(static_cast<std::int64_t>(rate)) + "/s";
  if (share < 1 && rate > 0) {
    text += ", " + format_seconds(static_cast<double>(total - done) / rate) + " left";
  }
  return text;
}

void ProgressBar::update(std::int64_t done, std::int64_t total) {
  const std::scoped_lock lock(mutex_);
  const Clock::time_point now = Clock::now();
  const auto pause = live_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
  const bool last_live = live_ && done >= total;
  if (now - shown_ < pause && !last_live) return;
  shown_ = now;
  const std::string text = line(done, total, std::chrono::duration<double>(now - start_).count());
  if (live_) {
    std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
    drawn_ = true;
  } else {
    log_info(text);
  }
}

}  // namespace trainctl
