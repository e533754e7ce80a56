// Records of each step: the memory of this process, the peak that MFU refers to, the lines of rank
// 0, timers, the ledger as text.
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
/// The peak resident memory of this process (VmHWM), in bytes; 0 if the system does not report it.
std::int64_t peak_resident_bytes();
/// The resident memory of this process now, in bytes; 0 as above.
std::int64_t resident_bytes();
/// The address space of this process now, in bytes; 0 as above.
std::int64_t virtual_bytes();
/// The memory that this machine can still allocate, or 0 if it does not report it.
std::int64_t available_bytes();

/// The denominator of MFU: the best rate of matrix products known so far, on all ranks.
class ProductPeak {
 public:
  /// FLOP/s of all ranks, and where the number is from.
  ProductPeak(double flops, std::string source) : flops_(flops), source_(std::move(source)) {}

  /// The share of the peak that a step reached, at most 1: a step that is faster than the peak is
  /// the peak from then on.
  double mfu(double flops_per_second, std::int64_t step) {
    if (flops_per_second > flops_) {
      flops_ = flops_per_second;
      source_ = "step " + std::to_string(step) + " of this session";
    }
    return flops_ > 0 ? flops_per_second / flops_ : 0;
  }
  double flops() const { return flops_; }
  /// "cluster.matmul_flops", "square products measured at the start" or "step 12 of this session"
  const std::string& source() const { return source_; }

 private:
  double flops_;
  std::string source_;
};

// The line that rank 0 writes after each step.

/// The system's clock, as the lines have it.
double seconds_since_1970();

class StepRecords {
 public:
  /// `fence`: that of the run's directory. Throws Error{io}.
  StepRecords(const std::filesystem::path& directory, ProductPeak peak, const Fence& fence);

  /// The last step of `trace`, with `timers` if they are reported now. Returns the values that it
  /// adds to the report.
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

// hooks.timers in a run: what the ranks spent in each phase, every log.every steps.

class TimerReports {
 public:
  explicit TimerReports(const Config& config);

  /// Adds the last step of `trace`, which is step number `step` of the run. After every
  /// log.every-th step and the last one of the session, the means since the report before; else
  /// empty. Collective over `everyone` where it is not.
  std::vector<TimerRange> after_step(const Trace& trace, std::int64_t step, bool last,
                                     Group& everyone);
  /// Lines for people about what was reported last.
  std::vector<std::string> lines(const std::vector<TimerRange>& timers) const;

 private:
  bool on_;
  std::int64_t every_;
  TimerSums sums_;
  std::int64_t first_ = 0;  // steps of the last report
  std::int64_t last_ = 0;
};

// The ledgers of the ranks as text: a table on stderr and members of measured.json.

/// One object with a member for each entry.
void add_ledger(const char* key, const Ledger& ledger, JsonText& json);

/// The mean of some ledgers, of which there is at least one.
Ledger mean_of(const std::vector<Ledger>& ledgers);

/// Lines for people: planned and measured seconds as means over the ranks, and the least and the
/// most that a rank measured. `planned` has one ledger per rank. `step`: as the run
/// counts.
std::vector<std::string> ledger_table(const std::vector<Ledger>& planned,
                                      const MeasuredLedgers& measured, std::int64_t step);

/// "step 1.00 s, planned 0.90 s (-10 %); products +0.08 s, bubble +0.02 s": the three kinds that
/// differ most, measured less planned, and only what is at least a hundredth of the step.
std::string differences_text(const Ledger& planned, const Ledger& measured);

}  // namespace trainctl
