// Records of each step: memory of this process, the peak rate that MFU refers to, the line that
// rank 0 writes, timers, and the ledger as text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json_text.h"
#include "config/schema/config.h"
#include "engine/report.h"
#include "engine/trace.h"
#include "run/directory/run_dir.h"

namespace trainctl {

/// The bytes of a line "VmHWM:   1234 kB" of a file in /proc; nothing without such a line.
std::optional<std::int64_t> bytes_in(const std::filesystem::path& file, const std::string& key);
/// The peak resident memory of this process (VmHWM) [bytes]; 0 if the system does not report it.
std::int64_t peak_resident_bytes();
/// The present resident memory of this process [bytes]; 0 if unknown.
std::int64_t resident_bytes();
/// The present address space of this process [bytes]; 0 if unknown.
std::int64_t virtual_bytes();
/// The memory that this machine can still allocate [bytes]; 0 if unknown.
std::int64_t available_bytes();

/// The denominator of MFU: the best rate of matrix products known so far, on all ranks.
class ProductPeak {
 public:
  /// `flops` is the rate of all ranks together [FLOP/s], `source` tells how it was found.
  ProductPeak(double flops, std::string source) : flops_(flops), source_(std::move(source)) {}

  /// The share of the peak that a step reached, at most 1: the rate of a faster step becomes the
  /// new peak.
  double mfu(double flops_per_second, std::int64_t step) {
    if (flops_per_second > flops_) {
      flops_ = flops_per_second;
      source_ = "step " + std::to_string(step) + " of this session";
    }
    return flops_ > 0 ? flops_per_second / flops_ : 0;
  }
  double flops() const { return flops_; }
  /// "cluster.matmul_flops", "square products measured at the start" or "step 12 of this session".
  const std::string& source() const { return source_; }

 private:
  double flops_;
  std::string source_;
};

// The line that rank 0 writes after each step.

/// The time of the system's clock, as written in the lines.
double seconds_since_1970();

class StepRecords {
 public:
  /// `fence` is that of the run's directory. Throws Error{io}.
  StepRecords(const std::filesystem::path& directory, ProductPeak peak, const Fence& fence);

  /// Writes the line of the last step of `trace`, with `timers` if they are reported now. Returns
  /// the values that it added to the report.
  StepNotes write(const StepReport& report, const Trace& trace, std::span<const TimerRange> timers);
  /// Writes a last line: see MetricsFile::write_end.
  void write_end(const std::string& end, const std::string& reason);
  /// Adds the validation loss to the line of a step that was already written. Throws Error{io}.
  void add_val_loss(std::int64_t step, double val_loss);
  /// Brings all lines to stable storage. Throws Error{io}.
  void sync() { metrics_->sync(); }
  const ProductPeak& peak() const { return peak_; }

 private:
  std::filesystem::path path_;
  const Fence& fence_;
  ProductPeak peak_;
  std::string told_source_;             // source of the peak, as last written to the file
  std::optional<MetricsFile> metrics_;  // reopened by add_val_loss
};

// hooks.timers in a run: the time that the ranks spent in each phase, every log.every steps.

class TimerReports {
 public:
  explicit TimerReports(const Config& config);

  /// Adds the last step of `trace`, which is step `step` of the run. After every log.every-th step
  /// and after the last one of the session, returns the means since the previous report; else
  /// returns nothing. Collective over `everyone` when it returns means.
  std::vector<TimerRange> after_step(const Trace& trace, std::int64_t step, bool last,
                                     Group& everyone);
  /// Lines for people about the last report.
  std::vector<std::string> lines(const std::vector<TimerRange>& timers) const;

 private:
  bool on_;
  std::int64_t every_;
  TimerSums sums_;
  std::int64_t first_ = 0;  // first and last step of the last report
  std::int64_t last_ = 0;
};

// The ledgers of the ranks as text: a table on stderr and members of measured.json.

/// Adds an object named `key` with a member for each entry of the ledger.
void add_ledger(const char* key, const Ledger& ledger, JsonText& json);

/// The mean of at least one ledger.
Ledger mean_of(const std::vector<Ledger>& ledgers);

/// A table for people: planned and measured seconds as means over the ranks, and the least and
/// greatest values that a rank measured. `planned` has one ledger per rank; `step` is the number of
/// the step in the run.
std::vector<std::string> ledger_table(const std::vector<Ledger>& planned,
                                      const MeasuredLedgers& measured, std::int64_t step);

/// A line such as "step 1.00 s, planned 0.90 s (-10 %); products +0.08 s, bubble +0.02 s": the
/// three entries that differ most (measured minus planned), by at least a hundredth of the step.
std::string differences_text(const Ledger& planned, const Ledger& measured);

}  // namespace trainctl
