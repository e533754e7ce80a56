// Fits constants above 0 so that predictions come close to measurements.
#pragma once

#include <functional>
#include <vector>

namespace trainctl {

struct FitCase {
  double weight = 1;
  std::vector<bool> concerned;  // by constant: whether the prediction depends on it
  bool used = true;             // false: it is not looked at, and its error is 0
};

/// Of a prediction, as a share: about what is left of published steps.
inline constexpr double usual_error = 0.05;

/// What a fit begins with: the value of each constant, and how far (in its logarithm) it may go
/// before that costs as much as a case with weight 1 that is off by usual_error.
struct FitStart {
  std::vector<double> values;
  std::vector<double> spread;
};

/// The logarithm of prediction over measurement of a case, with these values.
using FitError = std::function<double(std::size_t number, const std::vector<double>& values)>;

struct Fitted {
  std::vector<double> values;
  std::vector<double> errors;  // of all cases
};

/// Least weighted mean of absolute errors by reweighted least squares (Gauss-Newton steps with
/// slopes by differences) from `start` on; `tell` is called before each round.
Fitted fit(const std::vector<FitCase>& cases, const FitStart& start, const FitError& error,
           int rounds, const std::function<void(int round, double mean)>& tell);

}  // namespace trainctl
