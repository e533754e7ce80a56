// Prices compared with measured steps: their error, and the constants that would fit best.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace trainctl {

struct FitCase {
  double weight = 1;
  std::vector<bool> concerned;  // by constant: whether the prediction depends on it
  bool used = true;             // false: it is not looked at, and its error is 0
};

/// Usual error of a prediction, as a share of the measured time: about that of published steps.
inline constexpr double usual_error = 0.05;

/// The logarithm of prediction over measurement of a case, with these values.
using FitError = std::function<double(std::size_t number, const std::vector<double>& values)>;

/// The values with the least weighted mean of absolute errors, by reweighted least squares
/// (Gauss-Newton steps with slopes by differences) from `start` on; `tell` is called before each
/// round. `spread`: how far (in its logarithm) each constant may go before that costs as much as a
/// case with weight 1 that is off by usual_error.
std::vector<double> fit(const std::vector<FitCase>& cases, const std::vector<double>& start,
                        const std::vector<double>& spread, const FitError& error, int rounds,
                        const std::function<void(int round, double mean)>& tell);

/// The errors of all cases with these values.
std::vector<double> errors_of(const std::vector<FitCase>& cases, const FitError& error,
                              const std::vector<double>& values);

struct CalibrateRequest {
  std::string rows;            // a file of measured steps (run/calibration/published_steps.h)
  std::string device_out{};    // folder for the device files with what was fitted; "": not written
  std::string software_out{};  // the same for software
  bool fits = true;            // false: only the errors of the shipped figures
};

/// Rows that differ in layout only.
struct RowSet {
  std::size_t rows = 0;
  double lost = 0;         // by the layout with the least planned time, against the fastest
  double correlation = 0;  // of the ranks of planned and measured times
};

struct Calibration {
  std::string text;                         // for a terminal
  std::size_t planned = 0;                  // rows
  double mean = 0, median = 0;              // absolute error of the figures as they are, dense rows
  std::vector<RowSet> sets;                 // of at least five rows, by the figures as they are
  std::size_t constants = 0;                // that were fitted
  double folds_mean = 0, folds_median = 0;  // of dense rows, each predicted without its group
  double experts_mean = 0;  // as `mean`, of rows with experts, those that are not fitted too
};

/// Plans every row, prices it with the figures in use, and fits the constants of
/// run/calibration/calibrate.cpp; the error of a fit is that of eight folds of whole groups. Throws
/// Error{bad_data} for rows that cannot be read.
Calibration calibrate(const CalibrateRequest& request);

}  // namespace trainctl
