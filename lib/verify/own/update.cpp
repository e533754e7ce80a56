#include "verify/own/update.h"

#include <cmath>

namespace trainctl::own {

namespace {

/// Coefficients are numbers of fp32 where values are kept; 1 - beta is much of what there is.
double narrow(double coefficient) { return double{static_cast<float>(coefficient)}; }

/// What an update is made of besides the element; the gradient is clipped.
struct Terms {
  const OptimizerConfig& optimizer;
  const StepNumbers& numbers;
  double gradient, decay;
};

/// Loshchilov and Hutter 2019, algorithm 2; the decay is multiplied by the learning rate.
Element adamw(const Element& before, const Terms& terms) {
  const double beta1 = narrow(terms.optimizer.beta1);
  const double beta2 = narrow(terms.optimizer.beta2);
  Element after;
  after.first = beta1 * before.first + (1 - beta1) * terms.gradient;
  after.second = beta2 * before.second + (1 - beta2) * terms.gradient * terms.gradient;
  const double mean = after.first / terms.numbers.bias_correction1;
  const double deviation = std::sqrt(after.second / terms.numbers.bias_correction2);
  const double epsilon = narrow(terms.optimizer.eps);
  const double direction = mean / (deviation + epsilon) + terms.decay * before.value;
  after.value = before.value - terms.numbers.learning_rate * direction;
  return after;
}

Element sgd(const Element& before, const Terms& terms) {
  const bool coupled = terms.optimizer.weight_decay_form == WeightDecayForm::coupled;
  const double decay = terms.decay * before.value;
  Element after;
  after.first = terms.optimizer.momentum * before.first + terms.gradient + (coupled ? decay : 0);
  const double direction = after.first + (coupled ? 0 : decay);
  after.value = before.value - terms.numbers.learning_rate * direction;
  return after;
}

/// Chen et al. 2023, algorithm 2. Where the two terms of the direction cancel as far as
/// fp32 tells, its sign is not known.
Element lion(const Element& before, const Terms& terms) {
  const double beta1 = narrow(terms.optimizer.beta1);
  const double beta2 = narrow(terms.optimizer.beta2);
  const double kept = beta1 * before.first;
  const double added = (1 - beta1) * terms.gradient;
  const double sign = kept + added > 0 ? 1 : kept + added < 0 ? -1 : 0;
  const double rate = terms.numbers.learning_rate;
  Element after;
  after.first = beta2 * before.first + (1 - beta2) * terms.gradient;
  after.value = before.value - rate * (sign + terms.decay * before.value);
  const bool known = std::abs(kept + added) >= 0x1p-21 * (std::abs(kept) + std::abs(added));
  if (!known) after.loose = 2 * rate;
  return after;
}

}  // namespace

Update::Update(const OptimizerConfig& optimizer, const StepNumbers& numbers)
    : optimizer_(optimizer),
      numbers_(numbers),
      clip_(clip_coefficient(numbers.norm, optimizer.clip_grad_norm, numbers.before.loss_scale)) {}

Element Update::of(const Element& before, double gradient, bool decays) const {
  if (!numbers_.finite) return before;
  const Terms terms{.optimizer = optimizer_,
                    .numbers = numbers_,
                    .gradient = clip_ * gradient,
                    .decay = decays ? numbers_.weight_decay : 0};
  switch (optimizer_.type) {
    case OptimizerType::adamw: return adamw(before, terms);
    case OptimizerType::lion: return lion(before, terms);
    case OptimizerType::sgd: break;
  }
  return sgd(before, terms);
}

}  // namespace trainctl::own
