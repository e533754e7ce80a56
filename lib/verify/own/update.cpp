#include "verify/own/update.h"

#include <algorithm>
#include <cmath>

namespace trainctl::own {

namespace {

/// Coefficients are numbers of fp32 where values are kept; 1 - beta is much of what there is.
double narrow(double coefficient) { return double{static_cast<float>(coefficient)}; }

/// Whether a pattern of a group is the whole of a name.
bool fits(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*' && fits(pattern.substr(1), name)) return true;
  if (pattern.front() == '*') return !name.empty() && fits(pattern, name.substr(1));
  if (name.empty() || (pattern.front() != '?' && pattern.front() != name.front())) return false;
  return fits(pattern.substr(1), name.substr(1));
}

/// True for a matrix of attention and feed-forward layers, also of experts; false for a router and
/// for the gate of shared experts.
bool is_matrix_of_layer(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  const bool inside = has(".attention.") || has(".mlp.") || has(".experts.") || has(".shared.");
  return inside && decays(name);
}

/// The terms of an update in addition to the element; the gradient is clipped.
struct Terms {
  const OptimizerConfig& optimizer;
  const StepNumbers& numbers;
  double gradient, rate, decay, beta1, beta2;
};

/// Loshchilov and Hutter 2019, algorithm 2; the decay is multiplied by the learning rate.
Element adamw(const Element& before, const Terms& terms) {
  Element after;
  after.first = terms.beta1 * before.first + (1 - terms.beta1) * terms.gradient;
  after.second = terms.beta2 * before.second + (1 - terms.beta2) * terms.gradient * terms.gradient;
  const double mean = after.first / terms.numbers.bias_correction1;
  const double deviation = std::sqrt(after.second / terms.numbers.bias_correction2);
  const double epsilon = narrow(terms.optimizer.eps);
  const double direction = mean / (deviation + epsilon) + terms.decay * before.value;
  after.value = before.value - terms.rate * direction;
  return after;
}

Element sgd(const Element& before, const Terms& terms) {
  const bool coupled = terms.optimizer.weight_decay_form == WeightDecayForm::coupled;
  const double decay = terms.decay * before.value;
  Element after;
  after.first = terms.optimizer.momentum * before.first + terms.gradient + (coupled ? decay : 0);
  const double direction = after.first + (coupled ? 0 : decay);
  after.value = before.value - terms.rate * direction;
  return after;
}

/// Chen et al. 2023, algorithm 2. Where the two terms of the direction cancel as far as
/// fp32 tells, its sign is not known.
Element lion(const Element& before, const Terms& terms) {
  const double kept = terms.beta1 * before.first;
  const double added = (1 - terms.beta1) * terms.gradient;
  const double sign = kept + added > 0 ? 1 : kept + added < 0 ? -1 : 0;
  const double rate = terms.rate;
  Element after;
  after.first = terms.beta2 * before.first + (1 - terms.beta2) * terms.gradient;
  after.value = before.value - rate * (sign + terms.decay * before.value);
  const bool known = std::abs(kept + added) >= 0x1p-21 * (std::abs(kept) + std::abs(added));
  if (!known) after.loose = 2 * rate;
  return after;
}

/// The momentum, and for the matrix as a whole the decay; the direction is left in `second`.
Element muon(const Element& before, const Terms& terms) {
  const double kept = narrow(terms.optimizer.muon.momentum);
  Element after;
  after.first = kept * before.first + (1 - kept) * terms.gradient;
  after.second = terms.optimizer.muon.nesterov ? kept * after.first + (1 - kept) * terms.gradient
                                               : after.first;
  after.value = before.value * (1 - terms.rate * terms.decay);
  return after;
}

}  // namespace

Choice choice_of(std::string_view name, const OptimizerConfig& optimizer) {
  const bool is_rest = optimizer.type == OptimizerType::muon && !is_matrix_of_layer(name);
  Choice choice{.type = is_rest ? OptimizerType::adamw : optimizer.type,
                .rate = 1,
                .decay = decays(name) ? 1.0 : 0.0};
  if (name.ends_with(".expert_bias")) return choice;
  for (const OptimizerGroup& group : optimizer.groups.list) {
    for (const std::string& pattern : group.match) {
      if (!fits(pattern, name)) continue;
      if (group.type) choice.type = *group.type;
      choice.rate = group.lr_mult;
      if (group.wd_mult) choice.decay = *group.wd_mult;
      return choice;
    }
  }
  return choice;
}

double clip_factor(const std::string& name, double place, const OptimizerConfig& optimizer,
                   const ModelShape& model, std::span<const float> largest) {
  const bool is_query = name.find(".attention.q.") != std::string::npos;
  const bool is_key = name.find(".attention.k.") != std::string::npos;
  if (largest.empty() || !(is_query || is_key) || choice_of(name, optimizer).rate == 0) return 1;
  const int layer = std::stoi(name.substr(name.find('.') + 1));
  const std::int64_t kv_heads = model.kind(layer).kv_heads;
  const auto head = static_cast<std::int64_t>(place * static_cast<double>(kv_heads));
  const std::int64_t sharing = model.heads / kv_heads;
  const auto first = largest.begin() + layer * model.heads + head * sharing;
  const double threshold = optimizer.qk_clip_threshold.value_or(0);
  const double most = std::max(threshold, double{*std::max_element(first, first + sharing)});
  const double alpha = optimizer.qk_clip_alpha;
  return std::pow(threshold / most, is_query ? alpha : 1 - alpha);
}

Update::Update(const OptimizerConfig& optimizer, const StepNumbers& numbers)
    : optimizer_(optimizer),
      numbers_(numbers),
      clip_(clip_coefficient(numbers.norm, optimizer.clip_grad_norm, numbers.before.loss_scale)) {}

Element Update::of(const Element& before, double gradient, const Choice& choice) const {
  if (!numbers_.finite) return before;
  const Terms terms{.optimizer = optimizer_,
                    .numbers = numbers_,
                    .gradient = clip_ * gradient,
                    .rate = choice.rate * numbers_.learning_rate,
                    .decay = choice.decay * numbers_.weight_decay,
                    .beta1 = narrow(optimizer_.beta1),
                    .beta2 = narrow(optimizer_.beta2)};
  switch (choice.type) {
    case OptimizerType::adamw: return adamw(before, terms);
    case OptimizerType::lion: return lion(before, terms);
    case OptimizerType::muon: return muon(before, terms);
    case OptimizerType::sgd: break;
  }
  return sgd(before, terms);
}

double Update::average(double before, double value) const {
  if (!numbers_.finite) return before;
  const double kept = narrow(optimizer_.ema_decay);
  return kept * before + (1 - kept) * value;
}

}  // namespace trainctl::own
