// Checks that no other layout can make, as all layouts share these computations with the single
// rank: whether its gradients are those of its loss, and whether dropout drops the values that the
// configuration says.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "config/schema/config.h"
#include "verify/verify.h"

namespace trainctl {

/// The bound of the error in a slope, relative to the size of the direction times that of the
/// gradient.
inline constexpr double slope_bound = 1e-3;

/// For each kind of parameter the gradient along a random direction is compared with differences of
/// the loss, in fp32, with the losses of routers by verify's own formulas; the choices of routers
/// and what is dropped are held. The probability of each use of dropout is compared with that of
/// the configuration and with the zeros that it makes, which must be others in each step and use.
/// Takes one rank and a few sequences. `fault`, for tests: changes what the engine runs with.
LayoutVerdict check_alone(const Config& config, const std::function<void(Config&)>& fault = {});

/// The verdicts of that, each found once for all configurations that have the same model, experts
/// and kind of data: nothing else counts.
class OneRankChecks {
 public:
  LayoutVerdict verdict_of(const Config& config);

 private:
  std::vector<std::pair<Config, LayoutVerdict>> found_;  // by what is run
};

}  // namespace trainctl
