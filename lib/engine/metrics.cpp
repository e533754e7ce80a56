#include "engine/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/error.h"

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
  append(text, ", \"lr\": ", report.lr);
  append(text, ", \"tokens\": ", report.tokens);
  if (report.val_loss) append(text, ", \"val_loss\": ", *report.val_loss);
  if (report.skipped) text += ", \"skipped\": true";
  append(text, ", \"tokens_per_second\": ", report.tokens_per_second);
  append(text, ", \"step_seconds\": ", report.step_seconds);
  text += "}\n";
}

MetricsFile::MetricsFile(const std::filesystem::path& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644)) {
  require(file_ >= 0, ExitCode::io, "cannot write " + path.string() + ": " + std::strerror(errno));
  line_.reserve(512);
}

MetricsFile::~MetricsFile() { ::close(file_); }

void MetricsFile::write(const StepReport& report) {
  line_.clear();
  append_metrics(report, line_);
  std::size_t done = 0;
  while (done < line_.size()) {
    const ssize_t wrote = ::write(file_, line_.data() + done, line_.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      throw Error(ExitCode::io, "cannot write " + path_.string() + ": " + std::strerror(errno));
    }
    done += static_cast<std::size_t>(wrote);
  }
}

}  // namespace trainctl
