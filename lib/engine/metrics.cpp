#include "engine/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace trainctl {

namespace {

/// The shortest digits that read back to the same double.
std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 40> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace

std::string metrics_line(const StepReport& report) {
  std::string line = "{\"step\": " + std::to_string(report.step);
  const auto add = [&line](const char* key, const std::string& value) {
    line += std::string(", \"") + key + "\": " + value;
  };
  add("loss", number(report.loss));
  add("grad_norm", number(report.grad_norm));
  add("lr", number(report.lr));
  add("tokens", std::to_string(report.tokens));
  if (report.val_loss) add("val_loss", number(*report.val_loss));
  if (report.skipped) add("skipped", "true");
  add("tokens_per_second", number(report.tokens_per_second));
  add("step_seconds", number(report.step_seconds));
  return line + "}";
}

MetricsFile::MetricsFile(const std::filesystem::path& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644)) {
  require(file_ >= 0, ExitCode::io, "cannot write " + path.string() + ": " + std::strerror(errno));
}

MetricsFile::~MetricsFile() { ::close(file_); }

void MetricsFile::write(const StepReport& report) {
  const std::string line = metrics_line(report) + "\n";
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t wrote = ::write(file_, line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    require(wrote > 0, ExitCode::io,
            "cannot write " + path_.string() + ": " + std::strerror(errno));
    done += static_cast<std::size_t>(wrote);
  }
}

}  // namespace trainctl
