#include "run/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>

#include "base/units.h"

namespace trainctl {

namespace {

/// Parts of a line, two spaces apart, as long as they fit.
class Parts {
 public:
  Parts(std::string& text, int width) : text_(text), room_(width) {}

  template <class... Values>
  void add(const char* format, Values... values) {
    std::array<char, 64> part{};
    const int length = std::snprintf(part.data(), part.size(), format, values...);
    const int gap = started_ ? 2 : 0;
    full_ = full_ || (started_ && gap + length > room_);
    if (full_) return;
    text_.append(static_cast<std::size_t>(gap), ' ').append(part.data());
    room_ -= gap + length;
    started_ = true;
  }
  /// A name and its value by `format`, or "-" where the value is not finite.
  void add_number(const char* name, const char* format, double value) {
    std::array<char, 32> number{"-"};
    if (std::isfinite(value)) std::snprintf(number.data(), number.size(), format, value);
    add("%s %s", name, number.data());
  }

 private:
  std::string& text_;
  int room_;
  bool started_ = false;
  bool full_ = false;
};

int terminal_width() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

/// Smooths over about ten steps, so that the rate and the ETA can be read.
constexpr double smoothing = 0.1;

}  // namespace

void append_progress(const StepReport& report, double mfu, const ProgressSpace& space,
                     std::string& text) {
  Parts parts(text, space.width);
  parts.add("step %lld/%lld", static_cast<long long>(report.step),
            static_cast<long long>(report.steps));
  parts.add_number("loss", "%.4f", report.loss);
  if (report.val_loss) parts.add_number("val", "%.4f", *report.val_loss);
  if (report.skipped) parts.add("%s", "SKIPPED");
  parts.add_number("norm", "%.3g", report.grad_norm);
  if (report.loss_scale) parts.add("scale %.6g", *report.loss_scale);
  parts.add("lr %.2e", report.lr);
  parts.add("%s tok/s", format_count(report.tokens_per_second).c_str());
  if (mfu > 0) parts.add("MFU %.0f %%", 100 * mfu);
  if (report.step < report.steps) {
    parts.add("ETA %s", format_seconds(space.eta_seconds).c_str());
  }
}

ProgressLine::ProgressLine(ProgressOptions options)
    : options_(options), start_(std::chrono::steady_clock::now()) {
  line_.reserve(256);
}

ProgressLine::~ProgressLine() {
  if (line_open_) std::fputc('\n', stderr);
}

void ProgressLine::show(const StepReport& report, double mfu, bool last) {
  double& rate = smoothed_tokens_per_second_;
  rate =
      rate == 0 ? report.tokens_per_second : rate + smoothing * (report.tokens_per_second - rate);
  const bool own_line = last || report.val_loss || report.skipped || report.step == 1 ||
                        (!options_.live && report.step % options_.every == 0);
  if (!own_line && !options_.live) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  if (first_step_ == 0) first_step_ = report.step;
  const double eta = elapsed.count() / static_cast<double>(report.step - first_step_ + 1) *
                     static_cast<double>(report.steps - report.step);
  StepReport smooth = report;
  smooth.tokens_per_second = rate;
  const int width = options_.live ? terminal_width() - 1 : 200;
  line_.clear();
  append_progress(smooth, mfu, {eta, width}, line_);
  const bool bold = options_.live && options_.color && report.val_loss;
  std::fprintf(stderr, "%s%s%s%s%s", line_open_ ? "\r\x1b[K" : "", bold ? "\x1b[1m" : "",
               line_.c_str(), bold ? "\x1b[0m" : "", own_line ? "\n" : "");
  std::fflush(stderr);
  line_open_ = !own_line;
}

}  // namespace trainctl
