// An update by the optimizer of the configuration, in double.
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

/// By what a parameter is updated: the first entry of optimizer.groups with a pattern for its name,
/// where `*` is any characters and `?` one.
struct Choice {
  OptimizerType type = OptimizerType::adamw;
  double rate = 1;   // times the learning rate
  double decay = 0;  // times the weight decay
};
/// No entry takes the bias by which experts are chosen.
Choice choice_of(std::string_view name, const OptimizerConfig& optimizer);

/// By what the clipping of queries and keys multiplies an element of a parameter after its update.
/// `place`: of the element, as a share of the whole parameter; `largest`: the scores of the step,
/// [layers, heads], empty without clipping.
double clip_factor(const std::string& name, double place, const OptimizerConfig& optimizer,
                   const ModelShape& model, std::span<const float> largest);

/// An element of a parameter and the values that the optimizer keeps for it, in the order of its
/// row.
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

  /// `gradient`: summed, with the loss scale. Of muon: the value decayed, with the direction in
  /// `second`, of which own/muon.h makes the step.
  Element of(const Element& before, double gradient, const Choice& choice) const;
  /// The average of weights after the step; `value`: of the parameter then.
  double average(double before, double value) const;

  /// Whether updates of the step are made.
  bool finite() const { return numbers_.finite; }
  double learning_rate() const { return numbers_.learning_rate; }

 private:
  const OptimizerConfig& optimizer_;
  StepNumbers numbers_;
  double clip_ = 1;
};

// Muon's steps of whole parameters, in double: which rows or columns make a matrix, and what is
// made of it.

/// The direction of a whole parameter, and its shape; nothing where there is no such parameter or
/// another optimizer updates it.
struct Direction {
  Shape shape;
  std::vector<double> values;
};
using DirectionOf = std::function<Direction(const std::string& name)>;

/// The amount that muon subtracts from each element of the parameter at a learning rate of 1.
/// Matrices are [out, in], those of experts [experts, out, in].
std::vector<double> muon_steps_of(const std::string& name, const MuonConfig& muon,
                                  std::int64_t head_dim, const DirectionOf& direction_of);

/// By how much a step in fp32 may be off, as a share of its largest element.
double muon_bound(const MuonConfig& muon);

}  // namespace trainctl::own
