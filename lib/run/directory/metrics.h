// metrics.jsonl: one JSON object per step, for tools.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/file.h"
#include "engine/report.h"

namespace trainctl {

/// Appends one line with its newline to `text`: step, loss, grad_norm, loss_scale if there is a
/// scaler, lr, tokens, then val_loss if measured, then what depends on the clock:
/// tokens_per_second, step_seconds. Numbers in their shortest exact form; null where a value is not
/// finite.
void append_metrics(const StepReport& report, std::string& text);

class MetricsFile {
 public:
  /// Appends to `path`. Throws Error{io}.
  explicit MetricsFile(const std::filesystem::path& path);
  /// The line is in the file when this returns. Throws Error{io}, for example when the disk is
  /// full.
  void write(const StepReport& report);
  /// Brings all lines to stable storage. Throws Error{io}.
  void sync() { file_.sync(); }

 private:
  File file_;
  std::string line_;  // kept, so that a step allocates nothing
};

/// The step of the last whole line of a file; none if there is no such file or line.
std::optional<std::int64_t> last_step(const std::filesystem::path& path);
/// Adds the validation loss to the line of a step; no effect if there is no such line. Throws
/// Error{io}.
void add_val_loss(const std::filesystem::path& path, std::int64_t step, double val_loss);
/// Leaves the lines up to `step`, and of a step that is there twice the last. Throws Error{io}.
void keep_metrics_until(const std::filesystem::path& path, std::int64_t step);

}  // namespace trainctl
