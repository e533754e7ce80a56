// metrics.jsonl: one JSON object per step, for tools.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "engine/report.h"
#include "engine/timers.h"
#include "plan/cost/ledger.h"

namespace trainctl {

/// What rank 0 sees of itself after a step.
struct StepNotes {
  double time = 0;                       // seconds since 1970, UTC
  double mfu = 0;                        // 0 to 1: see records/product_peak.h
  std::int64_t memory = 0;               // resident bytes of the process
  Ledger ledger;                         // own_ledger of engine/ledger.h
  std::span<const TimerRange> timers{};  // of all ranks, over the steps since the last report
  /// What `mfu` is a share of, in FLOP/s of all ranks, and where that is from; empty: as in the
  /// line before.
  double peak_flops = 0;
  std::string_view peak_source{};
};

/// Appends one line with its newline to `text`: step, loss, grad_norm, loss_scale if there is a
/// scaler, lr, tokens, batch_size with a ramp, then val_loss if measured, then what depends on the
/// clock and the machine: tokens_per_second, step_seconds, time, mfu, memory, ledger, timers if
/// there are any, and mfu_peak if it is another than before. Numbers in their shortest exact form;
/// null where a value is not finite.
void append_metrics(const StepReport& report, const StepNotes& notes, std::string& text);

class MetricsFile {
 public:
  /// Appends to `path`. Throws Error{io}.
  explicit MetricsFile(const std::filesystem::path& path);
  /// The line is in the file when this returns. Where that fails, for example on a full disk, an
  /// error is logged, and the line waits in memory for the next call.
  void write(const StepReport& report, const StepNotes& notes);
  /// A last line: {"end": "interrupted at step 40", "reason": "SIGTERM", "time": ...}. It is not
  /// kept when the run goes on.
  void write_end(const std::string& end, const std::string& reason, double time);
  /// Brings all lines to stable storage. Throws Error{io}.
  void sync();

 private:
  void try_to_write();

  File file_;
  std::string lines_;  // not in the file yet; its memory is kept, so that a step allocates nothing
  bool failing_ = false;
};

/// The step of the last whole line of a file; none if there is no such file or line.
std::optional<std::int64_t> last_step(const std::filesystem::path& path);
/// Adds the validation loss to the line of a step; no effect if there is no such line. Throws
/// Error{io}.
void add_val_loss(const std::filesystem::path& path, std::int64_t step, double val_loss);
/// Leaves the lines up to `step`, and of a step that is there twice the last. Throws Error{io}.
void keep_metrics_until(const std::filesystem::path& path, std::int64_t step);

}  // namespace trainctl
