// Prices beside measured steps: how far off they are, and the constants that would fit them best.
#pragma once

#include <string>
#include <vector>

namespace trainctl {

struct CalibrateRequest {
  std::string rows;            // a file of measured steps (run/calibration/published_steps.h)
  std::string device_out{};    // folder for the device files with what was fitted; "": not written
  std::string software_out{};  // the same for software
  bool fits = true;            // false: only the errors of the shipped figures
};

/// Rows that differ in layout only.
struct LayoutSet {
  std::size_t rows = 0;
  double lost = 0;         // by the layout with the least planned time, beside the fastest
  double correlation = 0;  // of the ranks of planned and measured times
};

struct Calibration {
  std::string text;                         // for a terminal
  std::size_t planned = 0;                  // rows
  double mean = 0, median = 0;              // absolute error of the figures as they are, dense rows
  std::vector<LayoutSet> sets;              // of at least five rows, by the figures as they are
  std::size_t constants = 0;                // that were fitted
  double folds_mean = 0, folds_median = 0;  // of dense rows, each predicted without its group
  double experts_mean = 0;  // as `mean`, of rows with experts, those that are not fitted too
};

/// Plans every row, prices it with the figures in use, and fits the constants of
/// run/calibration/constants.h; the error of a fit is that of eight folds of whole groups. Throws
/// Error{bad_data} for rows that cannot be read.
Calibration calibrate(const CalibrateRequest& request);

}  // namespace trainctl
