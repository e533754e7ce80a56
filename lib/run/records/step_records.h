// What rank 0 writes down of each step.
#pragma once

#include <filesystem>
#include <optional>

#include "engine/ledger.h"
#include "engine/report.h"
#include "run/directory/metrics.h"
#include "run/records/product_peak.h"

namespace trainctl {

/// The system's clock, as the lines have it.
double seconds_since_1970();

class StepRecords {
 public:
  struct Input {
    const std::filesystem::path& directory;  // of the run
    ProductPeak peak;
    const Fence& fence;  // of the directory
  };
  /// Throws Error{io}.
  explicit StepRecords(const Input& input);

  /// The last step of `trace`, with `timers` if they are reported now. Returns what was seen beside
  /// the report.
  StepNotes write(const StepReport& report, const Trace& trace, std::span<const TimerRange> timers);
  /// See MetricsFile.
  void write_end(const std::string& end, const std::string& reason);
  /// The validation loss of a step that has its line. Throws Error{io}.
  void add_val_loss(std::int64_t step, double val_loss);
  /// Brings all lines to stable storage. Throws Error{io}.
  void sync() { metrics_->sync(); }
  const ProductPeak& peak() const { return peak_; }

 private:
  std::filesystem::path path_;
  const Fence& fence_;
  ProductPeak peak_;
  std::string told_source_;             // of the peak, in the file
  std::optional<MetricsFile> metrics_;  // replaced by add_val_loss
};

}  // namespace trainctl
