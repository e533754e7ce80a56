// Shows the progress of a run on stderr: one live line on a terminal, otherwise a plain line from
// time to time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/report.h"

namespace trainctl {

/// Appends "step 120/2000  loss 3.2104  norm 0.81  lr 1.00e-03  12.3k tok/s  MFU 41 %  ETA 2 m 05
/// s". Where the line does not fit into `width` columns, the norm is left out first, then the rate;
/// the ETA stays at 80 columns. `mfu` as StepNotes::mfu; unknown if 0.
void append_progress(const StepReport& report, double mfu, double eta_seconds, int width,
                     std::string& text);

class ProgressLine {
 public:
  /// `every`: steps between plain lines. `live`: whether stderr is a terminal.
  ProgressLine(std::int64_t every, bool live, bool color);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  /// Shows a step. A report with val_loss, the first and the last one get lines of their own.
  void show(const StepReport& report, double mfu, bool last);

 private:
  std::int64_t every_;
  bool live_;
  bool color_;
  std::chrono::steady_clock::time_point start_;
  std::int64_t first_step_ = 0;  // first step of this session
  double smoothed_tokens_per_second_ = 0;
  bool line_open_ = false;
  std::string line_;  // text of the line, kept so that a step allocates nothing
};

}  // namespace trainctl
