// Whether a run goes on, has ended and why, or says nothing any more: from its files alone.
#pragma once

#include <string>

#include "run/views/run_files.h"

namespace trainctl {

struct RunState {
  enum class Kind {
    waiting,   // no step is written yet
    running,   // the last line is recent
    silent,    // no line for much longer than between the lines before
    finished,  // the last step is written
    ended,     // before its last step
  };
  Kind kind = Kind::waiting;
  std::string text;  // "running", "interrupted at step 40 (SIGTERM)"
  bool over() const { return kind == Kind::finished || kind == Kind::ended; }
};

/// `now`: seconds since 1970. Reads the lease of the directory, and where the run has ended without
/// a word the last error of rank 0's log.
RunState state_of(const RunFiles& run, double now);

/// Seconds from one step to the next, over the last 100 lines, with validation and checkpoints; 0
/// if unknown.
double seconds_per_step(const RunFiles& run);

}  // namespace trainctl
