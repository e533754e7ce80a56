// Checks of the computations that all layouts share with the single rank, which a comparison with
// it cannot find wrong: that the gradients are those of the loss, and that dropout drops as
// configured.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "config/schema/config.h"
#include "verify/verify.h"

namespace trainctl {

/// The bound of the error of a slope, relative to the size of the direction times the size of the
/// gradient.
inline constexpr double slope_bound = 1e-3;

/// For each kind of parameter, compares the gradient along a random direction with differences of
/// the loss, in fp32. Router losses come from verify's own formulas; router choices and dropout
/// masks are held fixed. For each use of dropout, compares the probability with the configuration
/// and with the share of zeros; masks must differ between steps and uses. Takes one rank and a few
/// sequences. `fault`, for tests, changes the configuration that the engine runs.
LayoutVerdict check_alone(const Config& config, const std::function<void(Config&)>& fault = {});

/// Caches the verdicts of check_alone: one for all configurations with the same model, experts and
/// kind of data, on which alone a verdict depends.
class OneRankChecks {
 public:
  LayoutVerdict verdict_of(const Config& config);

 private:
  std::vector<std::pair<Config, LayoutVerdict>> found_;  // keyed by the configuration that runs
};

}  // namespace trainctl
