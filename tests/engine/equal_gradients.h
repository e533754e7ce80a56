// Steps from gradients that are the same in every layout, and what the owners have after them: what
// an optimizer makes of equal gradients, in every bit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/world.h"
#include "config/schema/config.h"
#include "plan/tables/params.h"
#include "sample_run.h"

namespace trainctl {

/// Whole parameters by name, and the optimizer's values of a parameter by "NAME state 0" and so on.
/// What was not looked at is NaN.
using Tensors = std::map<std::string, std::vector<float>>;

struct EqualSteps {
  std::vector<std::string> options;  // over the sample, without clipping and at a constant rate
  int ranks = 1;
  int steps = 2;
  std::function<void(Config&)> change{};  // of the configuration that is read
};

/// The gradient of element `index` of a whole parameter: normally distributed.
float equal_gradient(const std::string& name, std::int64_t index, int step);

/// After the steps. The ranks are threads.
Tensors after_equal_steps(const EqualSteps& run);
/// The values that this rank of a world owns; `ranks` does not count.
Tensors owned_after_equal_steps(const EqualSteps& run, World& world);

/// The values that an engine's store owns.
Tensors owned_values(const ParamStore& store, const Plan& plan, int rank);
/// Adds what another rank owns. Throws where both have an element with other bits.
void join(Tensors& all, const Tensors& other);

/// Names of tensors that differ in a bit, or that one side does not have. `found` may leave out
/// elements.
std::vector<std::string> different_bits(const Tensors& found, const Tensors& expected);

}  // namespace trainctl
