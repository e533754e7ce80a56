// A run as text for a terminal, as `trainctl watch` shows it, with a curve drawn with characters.
#pragma once

#include <string>
#include <vector>

#include "run/views/run_files.h"

namespace trainctl {

/// The space of a text on a terminal.
struct WatchSpace {
  int width = 80;      // columns
  int height = 24;     // lines
  bool utf8 = true;    // a plot may use eighths of a block; otherwise it has "*"
  bool color = false;  // the state may be coloured
};

/// Lines from the top to the bottom, with the highest value before the first and the lowest before
/// the last. Each column has the mean of the finite values that fall into it. No lines if there is
/// no finite value. The width includes the labels.
std::vector<std::string> text_plot(const std::vector<double>& values, const WatchSpace& space);

/// State, progress, loss with its curve, rate, norm, throughput, MFU and what it is a share of,
/// memory, the ledger of the last step, and the newest checkpoint. The plot of the loss takes the
/// lines that the rest leaves, at least 3. `now`: seconds since 1970. A part that the files do not
/// have is left out.
std::vector<std::string> watch_lines(const RunFiles& run, const WatchSpace& space, double now);

/// The state of a run in one line: "running  step 120/2000  loss 3.2104 ...".
std::string watch_line(const RunFiles& run, double now);

}  // namespace trainctl
