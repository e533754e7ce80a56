#include "run/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>

#include "base/units.h"

namespace trainctl {

namespace {

/// Parts of a line, two spaces apart. If they do not all fit, the least informative are left out.
class Parts {
 public:
  /// Parts with the greatest `order` are left out first; a part with order 0 always stays.
  template <class... Values>
  void add(int order, const char* format, Values... values) {
    Part& part = parts_[count_++];
    part.order = order;
    part.length = std::snprintf(part.text.data(), part.text.size(), format, values...);
  }
  /// Adds a name and its value by `format`, or "-" if the value is not finite.
  void add_number(int order, const char* name, const char* format, double value) {
    std::array<char, 32> number{"-"};
    if (std::isfinite(value)) std::snprintf(number.data(), number.size(), format, value);
    add(order, "%s %s", name, number.data());
  }

  void append_to(std::string& text, int width) {
    while (length() > width && drop_one()) {
    }
    bool first = true;
    for (std::size_t i = 0; i < count_; ++i) {
      if (parts_[i].dropped) continue;
      text.append(first ? 0 : gap, ' ').append(parts_[i].text.data());
      first = false;
    }
  }

 private:
  struct Part {
    std::array<char, 64> text{};
    int length = 0;
    int order = 0;
    bool dropped = false;
  };
  static constexpr int gap = 2;

  int length() const {
    int sum = -gap;
    for (std::size_t i = 0; i < count_; ++i) sum += parts_[i].dropped ? 0 : gap + parts_[i].length;
    return sum;
  }
  bool drop_one() {
    Part* least = nullptr;
    for (std::size_t i = 0; i < count_; ++i) {
      Part& part = parts_[i];
      const int most = least == nullptr ? 0 : least->order;
      if (!part.dropped && part.order > most) least = &part;
    }
    if (least != nullptr) least->dropped = true;
    return least != nullptr;
  }

  std::array<Part, 10> parts_{};
  std::size_t count_ = 0;
};

int terminal_width() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

/// The share of a new value in the running mean, about ten steps long.
constexpr double smoothing = 0.1;

}  // namespace

void append_progress(const StepReport& report, double mfu, double eta_seconds, int width,
                     std::string& text) {
  Parts parts;
  parts.add(0, "step %lld/%lld", static_cast<long long>(report.step),
            static_cast<long long>(report.steps));
  parts.add_number(1, "loss", "%.4f", report.loss);
  if (report.val_loss) parts.add_number(2, "val", "%.4f", *report.val_loss);
  if (report.skipped) parts.add(3, "%s", "SKIPPED");
  parts.add_number(9, "norm", "%.3g", report.grad_norm);
  if (report.loss_scale) parts.add(7, "scale %.6g", *report.loss_scale);
  parts.add(8, "lr %.2e", report.lr);
  parts.add(5, "%s tok/s", format_count(report.tokens_per_second).c_str());
  if (mfu > 0) parts.add(6, "MFU %.0f %%", 100 * mfu);
  if (report.step < report.steps) {
    parts.add(4, "ETA %s", format_seconds(eta_seconds).c_str());
  }
  parts.append_to(text, width);
}

ProgressLine::ProgressLine(std::int64_t every, bool live, bool color)
    : every_(every), live_(live), color_(color), start_(std::chrono::steady_clock::now()) {
  line_.reserve(256);
}

ProgressLine::~ProgressLine() {
  if (line_open_) std::fputc('\n', stderr);
}

void ProgressLine::show(const StepReport& report, double mfu, bool last) {
  if (first_step_ == 0) first_step_ = report.step;
  double& rate = smoothed_tokens_per_second_;
  rate =
      rate == 0 ? report.tokens_per_second : rate + smoothing * (report.tokens_per_second - rate);
  const bool own_line = last || report.val_loss || report.skipped || report.step == 1 ||
                        (!live_ && report.step % every_ == 0);
  if (!own_line && !live_) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const double eta = elapsed.count() / static_cast<double>(report.step - first_step_ + 1) *
                     static_cast<double>(report.steps - report.step);
  StepReport smooth = report;
  smooth.tokens_per_second = rate;
  const int width = live_ ? terminal_width() - 1 : 200;
  line_.clear();
  append_progress(smooth, mfu, eta, width, line_);
  const bool bold = live_ && color_ && report.val_loss;
  std::fprintf(stderr, "%s%s%s%s%s", line_open_ ? "\r\x1b[K" : "", bold ? "\x1b[1m" : "",
               line_.c_str(), bold ? "\x1b[0m" : "", own_line ? "\n" : "");
  std::fflush(stderr);
  line_open_ = !own_line;
}

}  // namespace trainctl
