// Text for a terminal that shows a run, with a curve drawn with characters, for `trainctl watch`.
#pragma once

#include <string>
#include <vector>

#include "run/views/run_files.h"

namespace trainctl {

/// The size of a terminal, and the characters that it shows.
struct WatchSpace {
  int width = 80;      // columns
  int height = 24;     // lines
  bool utf8 = true;    // whether it shows eighths of a block; otherwise plots use "*"
  bool color = false;  // whether the state of the run is coloured
};

/// A plot of `values` as lines from top to bottom, labelled with the highest value at the top and
/// the lowest at the bottom. Each column shows the mean of its share of the finite values. No lines
/// if no value is finite. The width includes the labels.
std::vector<std::string> text_plot(const std::vector<double>& values, const WatchSpace& space);

/// The view of a run: state, progress, loss with its curve, rate, norm, throughput, MFU and its
/// peak, memory, the ledger of the last step, the newest checkpoint. The plot of the loss gets the
/// remaining lines, at least 3. Parts that the files lack are left out. `now`: seconds since 1970.
std::vector<std::string> watch_lines(const RunFiles& run, const WatchSpace& space, double now);

/// The state of a run in one line: "running  step 120/2000  loss 3.2104 ...".
std::string watch_line(const RunFiles& run, double now);

}  // namespace trainctl
