#include "run/metrics.h"

#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>

namespace trainctl {

namespace {

/// A double in the shortest digits that read back to the same one.
template <class Number>
void append(std::string& text, const char* key, Number value) {
  text += key;
  if constexpr (std::is_same_v<Number, double>) {
    if (!std::isfinite(value)) {
      text += "null";
      return;
    }
  }
  std::array<char, 40> digits{};
  text.append(digits.data(), std::to_chars(digits.data(), digits.end(), value).ptr);
}

}  // namespace

void append_metrics(const StepReport& report, std::string& text) {
  append(text, "{\"step\": ", report.step);
  append(text, ", \"loss\": ", report.loss);
  append(text, ", \"grad_norm\": ", report.grad_norm);
  if (report.loss_scale) append(text, ", \"loss_scale\": ", *report.loss_scale);
  append(text, ", \"lr\": ", report.lr);
  append(text, ", \"tokens\": ", report.tokens);
  if (report.val_loss) append(text, ", \"val_loss\": ", *report.val_loss);
  if (report.skipped) text += ", \"skipped\": true";
  append(text, ", \"tokens_per_second\": ", report.tokens_per_second);
  append(text, ", \"step_seconds\": ", report.step_seconds);
  text += "}\n";
}

MetricsFile::MetricsFile(const std::filesystem::path& path) : file_(File::open_to_append(path)) {
  line_.reserve(512);
}

void MetricsFile::write(const StepReport& report) {
  line_.clear();
  append_metrics(report, line_);
  file_.write(line_);
}

}  // namespace trainctl
