// Prices beside measured steps: how far off they are, and the constants that would fit them best.
#pragma once

#include <string>

namespace trainctl {

struct CalibrateRequest {
  std::string rows;          // a file of measured steps (run/calibration/published_steps.h)
  std::string device_out;    // folder for the device files with what was fitted; "": not written
  std::string software_out;  // the same for software
  bool fits = true;          // false: only the errors of the shipped figures
};

struct Calibration {
  std::string text;            // for a terminal
  std::size_t planned = 0;     // rows
  double mean = 0, median = 0;              // absolute error of the figures as they are, dense rows
  double folds_mean = 0, folds_median = 0;  // of dense rows, each predicted without its group
};

/// Plans every row, prices it with the figures in use, and fits the constants of
/// run/calibration/constants.h; the error of a fit is that of eight folds of whole groups. Throws
/// Error{bad_data} for rows that cannot be read.
Calibration calibrate(const CalibrateRequest& request);

}  // namespace trainctl
