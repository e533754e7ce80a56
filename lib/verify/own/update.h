// An update by the optimizer of the configuration, in double.
#pragma once

#include <span>
#include <string>
#include <string_view>

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

}  // namespace trainctl::own
