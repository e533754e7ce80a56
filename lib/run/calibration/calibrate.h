// Compares priced steps with measured ones: the errors, and the constants that would fit best.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace trainctl {

struct FitCase {
  double weight = 1;
  std::vector<bool> concerned;  // for each constant, whether the prediction depends on it
  bool used = true;             // if false, the case is skipped and its error is 0
};

/// The usual error of a prediction, as a share of the measured time: about that of published steps.
inline constexpr double usual_error = 0.05;

/// log(prediction / measurement) of case `number` with these values of the constants.
using FitError = std::function<double(std::size_t number, const std::vector<double>& values)>;

/// The values with the least weighted mean of absolute errors, by reweighted least squares
/// (Gauss-Newton steps with slopes by differences) from `start` on. Calls `tell` before each round.
/// `spread`: the change of each constant's logarithm that costs as much as a case with weight 1 and
/// an error of usual_error.
std::vector<double> fit(const std::vector<FitCase>& cases, const std::vector<double>& start,
                        const std::vector<double>& spread, const FitError& error, int rounds,
                        const std::function<void(int round, double mean)>& tell);

/// The errors of all cases with these values.
std::vector<double> errors_of(const std::vector<FitCase>& cases, const FitError& error,
                              const std::vector<double>& values);

/// Rows that differ in layout only.
struct RowSet {
  std::size_t rows = 0;
  double lost = 0;         // share of time lost by the layout with the least planned time
  double correlation = 0;  // rank correlation of planned and measured times
};

struct Calibration {
  std::string text;                         // text for a terminal
  std::size_t planned = 0;                  // number of rows that have a plan
  double mean = 0, median = 0;              // absolute error with the shipped figures, dense rows
  std::vector<RowSet> sets;                 // with at least five rows, shipped figures
  std::size_t constants = 0;                // number of fitted constants
  double folds_mean = 0, folds_median = 0;  // cross-validated, of dense rows
  double experts_mean = 0;                  // `mean` of rows with experts, fitted or not
};

/// Plans every row, prices it with the figures in use, and fits the constants of
/// run/calibration/calibrate.cpp. The error of a fit is found by cross-validation with eight folds
/// of whole groups. `rows`: a file of measured steps (run/calibration/published_steps.h).
/// `device_out`, `software_out`: folders for files of devices and of software with the fitted
/// figures; not written if "". Throws Error{bad_data} for rows that cannot be read.
Calibration calibrate(const std::string& rows, const std::string& device_out,
                      const std::string& software_out);
/// Does this without fitting: finds only the errors of the shipped figures.
Calibration errors_of_shipped(const std::string& rows);

}  // namespace trainctl
