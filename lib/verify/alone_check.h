// What no other layout can show, as all share it with the single rank: whether its gradients are
// those of its loss, and whether dropout drops what the configuration says.
#pragma once

#include <functional>

#include "config/schema/config.h"
#include "verify/verify.h"

namespace trainctl {

/// Of the size of a direction times that of the gradient.
inline constexpr double slope_bound = 1e-3;

/// For each kind of parameter the gradient along a random direction is compared with differences of
/// the loss, in fp32, with the losses of routers by verify's own formulas; the choices of routers
/// and what is dropped are held. The probability of each use of dropout is compared with that of
/// the configuration and with the zeros that it makes, which must be others in each step and use.
/// Takes one rank and a few sequences. `fault`, for tests: changes what the engine runs with.
LayoutVerdict check_alone(const Config& config, const std::function<void(Config&)>& fault = {});

}  // namespace trainctl
