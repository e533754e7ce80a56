#include "verify/scalars.h"

#include <cmath>
#include <numeric>
#include <string>

#include "base/at.h"
#include "verify/verify.h"

namespace trainctl {

own::Labels labels_of(const std::vector<Batch>& batches) {
  own::Labels labels;
  for (const Batch& batch : batches) {
    for (const float weight : batch.loss_weight) labels.weights += double{weight};
    for (const std::int64_t real : batch.real) labels.positions += static_cast<double>(real);
  }
  return labels;
}

own::Counters first_counters(const Config& config, double loss_scale) {
  return {.hysteresis = own::scale_rule(config).hysteresis, .loss_scale = loss_scale};
}

void add_gradients(const Config& config, const WholeTensors& gradients, own::StepNumbers& numbers) {
  double squares = 0;
  for (const auto& [name, values] : gradients) {
    for (const float value : values) squares += double{value} * double{value};
  }
  add_norm(config, std::sqrt(squares) / numbers.before.loss_scale, std::isfinite(squares), numbers);
}

void add_norm(const Config& config, double norm, bool finite, own::StepNumbers& numbers) {
  numbers.norm = norm;
  numbers.finite = finite;
  numbers.after = own::after_step(own::scale_rule(config), numbers.before, finite);
}

namespace {

class Scalars {
 public:
  Scalars(Findings& findings, Phase phase, std::int64_t step, double bound = scalar_bound)
      : findings_(findings), subject_{.phase = phase, .step = step, .bound = bound} {
    subject_.beside = "by verify's own arithmetic it is";
  }

  void compare(const std::string& name, double found, double expected) {
    findings_.compare(subject_, found, expected, name);
    ++subject_.row;
  }
  void compare(const std::string& name, std::int64_t found, std::int64_t expected) {
    compare(name, static_cast<double>(found), static_cast<double>(expected));
  }

 private:
  Findings& findings_;
  Findings::Subject subject_;
};

/// By the norm that was found, so that a small difference of that one is not seen twice.
void compare_clip(Findings& findings, Phase phase, const OptimizerConfig& optimizer,
                  const FoundScalars& found, const own::StepNumbers& expected) {
  Scalars(findings, phase, found.step)
      .compare("clip_coefficient", double{found.state.clip_coefficient},
               own::clip_coefficient(found.state.grad_norm, optimizer.clip_grad_norm,
                                     expected.before.loss_scale));
}

}  // namespace

void compare_scalars(Findings& findings, Phase phase, const FoundScalars& found,
                     const own::StepNumbers& expected) {
  Scalars scalars(findings, phase, found.step);
  const StepState& state = found.state;
  scalars.compare("step", state.step, expected.step);
  scalars.compare("learning_rate", double{state.learning_rate}, expected.learning_rate);
  scalars.compare("weight_decay", double{state.weight_decay}, expected.weight_decay);
  scalars.compare("bias_correction1", double{state.bias_correction1}, expected.bias_correction1);
  scalars.compare("bias_correction2", double{state.bias_correction2}, expected.bias_correction2);
  scalars.compare("loss_factor", double{state.loss_factor}, found.factor * expected.loss_factor);
  scalars.compare("token_factor", double{state.token_factor}, found.factor * expected.token_factor);
}

void compare_verdict(Findings& findings, const OptimizerConfig& optimizer,
                     const FoundScalars& found, const own::StepNumbers& expected) {
  if (expected.finite) {
    findings.compare({.phase = Phase::grad_norm,
                      .step = found.step,
                      .bound = fp32_bound,
                      .beside = "the gradients have"},
                     found.state.grad_norm, expected.norm);
    compare_clip(findings, Phase::clip, optimizer, found, expected);
  }
  compare_counters(findings, Phase::scaler, found, expected.after);
}

void compare_free_scalars(Findings& findings, const OptimizerConfig& optimizer,
                          const FoundScalars& found, const own::StepNumbers& expected) {
  compare_scalars(findings, Phase::free_scalar, found, expected);
  // The clip follows from the scale.
  compare_counters(findings, Phase::free_scalar, found, expected.after);
  if (expected.finite) compare_clip(findings, Phase::free_scalar, optimizer, found, expected);
}

void compare_router(Findings& findings, const RouterReport& found, std::int64_t step,
                    const RecordedStep& expected) {
  own::RouterSums sums;
  std::vector<double> loads;  // over the mean of their layer
  for (const own::RouterSums& layer : expected.router_sums) {
    sums.balance += layer.balance;
    sums.z_loss += layer.z_loss;
    sums.entropy += layer.entropy;
    sums.dropped += layer.dropped;
    const double all = std::accumulate(layer.loads.begin(), layer.loads.end(), 0.0);
    for (const double load : layer.loads) {
      loads.push_back(load * static_cast<double>(found.experts) / all);
    }
  }
  const double tokens = expected.real_tokens * static_cast<double>(expected.router_sums.size());
  Scalars scalars(findings, Phase::router_report, step, fp32_bound);
  scalars.compare("balance loss", found.balance_loss, sums.balance / tokens);
  scalars.compare("z loss", found.z_loss, sums.z_loss / tokens);
  scalars.compare("entropy", found.entropy, sums.entropy / tokens);
  scalars.compare("dropped choices", found.dropped, sums.dropped);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    scalars.compare("load of expert " + std::to_string(i % static_cast<std::size_t>(found.experts)),
                    double{found.loads[i]}, loads[i]);
  }
}

void compare_scores(Findings& findings, std::int64_t step, double bound,
                    std::span<const float> found, std::span<const float> expected,
                    std::int64_t heads) {
  Findings::Subject subject{.phase = Phase::clip, .step = step, .bound = bound};
  for (; subject.row < std::ssize(expected); ++subject.row) {
    if (subject.row % heads == 0) {
      const auto layer = expected.begin() + subject.row;
      subject.min_scale = largest_of(std::vector<float>(layer, layer + heads));
    }
    findings.compare(subject, double{at(found, subject.row)}, double{at(expected, subject.row)},
                     "largest attention score " + std::to_string(subject.row));
  }
}

void compare_counters(Findings& findings, Phase phase, const FoundScalars& found,
                      const own::Counters& expected) {
  Scalars scalars(findings, phase, found.step);
  scalars.compare("loss scale", found.state.loss_scale, expected.loss_scale);
  scalars.compare("updates", found.state.updates, expected.updates);
  scalars.compare("good_steps", found.state.good_steps, expected.good_steps);
  scalars.compare("hysteresis", found.state.hysteresis, expected.hysteresis);
}

}  // namespace trainctl
