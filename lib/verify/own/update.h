// An update by the optimizer of the configuration, in double.
#pragma once

#include "config/schema/config.h"
#include "verify/own/step_numbers.h"

namespace trainctl::own {

/// An element of a parameter and what the optimizer keeps beside it in the order of its row.
struct Element {
  double value = 0;
  double first = 0;
  double second = 0;
  /// After an update: by how much the value may be off where the rule jumps and what decides is as
  /// small as fp32 rounds it.
  double loose = 0;
};

/// The update of a step, of any element of any parameter.
class Update {
 public:
  /// `numbers` with norm.
  Update(const OptimizerConfig& optimizer, const StepNumbers& numbers);

  /// `gradient`: summed, with the loss scale. `decays`: see decays().
  Element of(const Element& before, double gradient, bool decays) const;

 private:
  const OptimizerConfig& optimizer_;
  StepNumbers numbers_;
  double clip_ = 1;
};

}  // namespace trainctl::own
