#include "verify/own/update.h"

#include <cmath>

namespace trainctl::own {

namespace {

/// Coefficients are numbers of fp32 where values are kept; 1 - beta is much of what there is.
double narrow(double coefficient) { return double{static_cast<float>(coefficient)}; }

}  // namespace

Update::Update(const OptimizerConfig& optimizer, const StepNumbers& numbers)
    : optimizer_(optimizer),
      numbers_(numbers),
      clip_(clip_coefficient(numbers.norm, optimizer.clip_grad_norm, numbers.before.loss_scale)) {}

Element Update::of(const Element& before, double gradient, bool decays) const {
  if (!numbers_.finite) return before;
  const double decay = decays ? numbers_.weight_decay : 0;
  switch (optimizer_.type) {
    case OptimizerType::adamw: return adamw(before, clip_ * gradient, decay);
    case OptimizerType::sgd: break;
  }
  return sgd(before, clip_ * gradient, decay);
}

/// Loshchilov and Hutter 2019, algorithm 2; the decay is multiplied by the learning rate.
Element Update::adamw(const Element& before, double gradient, double decay) const {
  const double beta1 = narrow(optimizer_.beta1);
  const double beta2 = narrow(optimizer_.beta2);
  Element after;
  after.first = beta1 * before.first + (1 - beta1) * gradient;
  after.second = beta2 * before.second + (1 - beta2) * gradient * gradient;
  const double mean = after.first / numbers_.bias_correction1;
  const double deviation = std::sqrt(after.second / numbers_.bias_correction2);
  const double direction = mean / (deviation + narrow(optimizer_.eps)) + decay * before.value;
  after.value = before.value - numbers_.learning_rate * direction;
  return after;
}

Element Update::sgd(const Element& before, double gradient, double decay) const {
  const bool coupled = optimizer_.weight_decay_form == WeightDecayForm::coupled;
  Element after;
  after.first = optimizer_.momentum * before.first + gradient;
  if (coupled) after.first += decay * before.value;
  const double direction = after.first + (coupled ? 0 : decay * before.value);
  after.value = before.value - numbers_.learning_rate * direction;
  return after;
}

}  // namespace trainctl::own
