#include "run/records/step_records.h"

#include <chrono>

#include "run/records/process_memory.h"

namespace trainctl {

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

StepRecords::StepRecords(const Input& input)
    : path_(input.directory / "metrics.jsonl"), fence_(input.fence), peak_(input.peak) {
  metrics_.emplace(path_, fence_);
}

void StepRecords::add_val_loss(std::int64_t step, double val_loss) {
  trainctl::add_val_loss(path_, step, val_loss, fence_);
  metrics_.emplace(path_, fence_);  // it is another file now
}

StepNotes StepRecords::write(const StepReport& report, const Trace& trace,
                             std::span<const TimerRange> timers) {
  StepNotes notes{.time = seconds_since_1970(),
                  .mfu = peak_.mfu(report.flops_per_second, report.step),
                  .memory = resident_bytes(),
                  .ledger = own_ledger(trace, trace.completed_steps()),
                  .timers = timers};
  if (peak_.source() != told_source_) {
    told_source_ = peak_.source();
    notes.peak_flops = peak_.flops();
    notes.peak_source = told_source_;
  }
  metrics_->write(report, notes);
  return notes;
}

void StepRecords::write_end(const std::string& end, const std::string& reason) {
  metrics_->write_end(end, reason, seconds_since_1970());
}

}  // namespace trainctl
