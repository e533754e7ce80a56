#include "engine/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <vector>

#include "base/units.h"

namespace trainctl {

namespace {

std::string printed(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

int terminal_width() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

/// Smooths over about ten steps, so that the rate and the ETA can be read.
constexpr double smoothing = 0.1;

}  // namespace

std::string progress_line(const StepReport& report, const ProgressOptions& options,
                          double eta_seconds, int width) {
  std::vector<std::string> parts{
      "step " + std::to_string(report.step) + "/" + std::to_string(report.steps),
      "loss " + printed("%.4f", report.loss)};
  if (report.val_loss) parts.push_back("val " + printed("%.4f", *report.val_loss));
  if (report.skipped) parts.emplace_back("SKIPPED");
  parts.push_back("norm " + printed("%.3g", report.grad_norm));
  parts.push_back("lr " + printed("%.2e", report.lr));
  parts.push_back(format_count(report.tokens_per_second) + " tok/s");
  if (options.flops_ceiling > 0) {
    parts.push_back("MFU " +
                    printed("%.0f", 100 * report.flops_per_second / options.flops_ceiling) + " %");
  }
  if (report.step < report.steps) parts.push_back("ETA " + format_seconds(eta_seconds));
  std::string line = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (line.size() + 2 + parts[i].size() > static_cast<std::size_t>(width)) break;
    line += "  " + parts[i];
  }
  return line;
}

Progress::Progress(ProgressOptions options)
    : options_(options), start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (line_open_) std::fputc('\n', stderr);
}

void Progress::show(const StepReport& report, bool last) {
  double& rate = smoothed_tokens_per_second_;
  rate =
      rate == 0 ? report.tokens_per_second : rate + smoothing * (report.tokens_per_second - rate);
  const bool own_line = last || report.val_loss || report.skipped || report.step == 1 ||
                        (!options_.live && report.step % options_.every == 0);
  if (!own_line && !options_.live) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const double eta = elapsed.count() / static_cast<double>(report.step) *
                     static_cast<double>(report.steps - report.step);
  StepReport smooth = report;
  smooth.tokens_per_second = rate;
  const int width = options_.live ? terminal_width() - 1 : 200;
  const std::string line = progress_line(smooth, options_, eta, width);
  const bool bold = options_.live && options_.color && report.val_loss;
  std::fprintf(stderr, "%s%s%s%s%s", line_open_ ? "\r\x1b[K" : "", bold ? "\x1b[1m" : "",
               line.c_str(), bold ? "\x1b[0m" : "", own_line ? "\n" : "");
  std::fflush(stderr);
  line_open_ = !own_line;
}

}  // namespace trainctl
