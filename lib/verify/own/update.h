// Updates by the configured optimizer, computed in double.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "config/schema/config.h"
#include "plan/tables/model.h"
#include "verify/own/step_numbers.h"

namespace trainctl::own {

/// The settings of a parameter's update: from the first entry of optimizer.groups with a pattern
/// that matches its name, where `*` is any characters and `?` is one.
struct Choice {
  OptimizerType type = OptimizerType::adamw;
  double rate = 1;   // multiplies the learning rate
  double decay = 0;  // multiplies the weight decay
};
/// The choice for parameter `name`. Group entries do not apply to the bias of experts.
Choice choice_of(std::string_view name, const OptimizerConfig& optimizer);

/// The factor by which the clipping of queries and keys multiplies an element of a parameter after
/// its update. `place` is the element's position as a share of the whole parameter; `largest` has
/// the step's largest scores, [layers, heads], and is empty without clipping.
double clip_factor(const std::string& name, double place, const OptimizerConfig& optimizer,
                   const ModelShape& model, std::span<const float> largest);

/// An element of a parameter, and its optimizer states in the order of the optimizer's row.
struct Element {
  double value = 0;
  double first = 0;
  double second = 0;
  /// After an update: the allowed error of the value, if the rule has a jump at a quantity that is
  /// within fp32 rounding of it.
  double loose = 0;
};

/// The update of one step, for any element of any parameter.
class Update {
 public:
  /// `numbers` must include the norm.
  Update(const OptimizerConfig& optimizer, const StepNumbers& numbers);

  /// `gradient` is summed and has the loss scale. For muon, returns the decayed value, and the
  /// direction in `second`; own/muon.h computes the step from it.
  Element of(const Element& before, double gradient, const Choice& choice) const;
  /// The average of weights after the step; `value` is the parameter after the step.
  double average(double before, double value) const;

  /// Whether the step updates parameters, rather than being skipped.
  bool finite() const { return numbers_.finite; }
  double learning_rate() const { return numbers_.learning_rate; }

 private:
  const OptimizerConfig& optimizer_;
  StepNumbers numbers_;
  double clip_ = 1;
};

// Muon's steps for whole parameters, computed in double, with the rules by which rows or columns
// are combined to a matrix.

/// The direction and shape of a whole parameter. Empty if the parameter does not exist or another
/// optimizer updates it.
struct Direction {
  Shape shape;
  std::vector<double> values;
};
using DirectionOf = std::function<Direction(const std::string& name)>;

/// The amount that Muon subtracts from each element of the parameter at a learning rate of 1.
/// Matrices are [out, in]; those of experts are [experts, out, in].
std::vector<double> muon_steps_of(const std::string& name, const MuonConfig& muon,
                                  std::int64_t head_dim, const DirectionOf& direction_of);

/// The allowed error of a step computed in fp32, relative to the step's largest element.
double muon_bound(const MuonConfig& muon);

}  // namespace trainctl::own
