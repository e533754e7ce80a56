// The formulas of elementwise optimizers, shared by all backends. A rule holds the constants of a
// step and computes an element's new parameter and states from the old ones and the clipped
// gradient. Real is the type in which the backend computes. A rule with `by_reciprocals` multiplies
// by reciprocals instead of dividing, which is faster and differs in the last bits. A new rule is a
// struct and a case of with_rule.
#pragma once

#include <cmath>
#include <string_view>

#include "ops/optimizer.h"

namespace trainctl {

/// The learning rate and the decay of a parameter: those of the step times its factors.
constexpr float rate_of(const Update& args) {
  return args.state->learning_rate * args.constants.rate_factor;
}
constexpr float decay_of(const Update& args) {
  return args.decay ? args.state->weight_decay * args.constants.decay_factor : 0.0F;
}

/// AdamW (Loshchilov and Hutter 2019, algorithm 2):
///   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
///   p -= lr ( (m / bias_correction1) / (sqrt(v / bias_correction2) + eps) + weight_decay p )
template <class Real, bool by_reciprocals>
struct AdamWRule {
  static constexpr std::string_view name = "adamw";
  static constexpr int states = 2;
  static constexpr bool narrow_states = true;  // states may be bf16
  static constexpr bool clipped = true;        // the gradient is clipped
  static constexpr bool keeps(const UpdateConstants&) { return true; }

  Real beta1, beta2, epsilon, correction1, correction2, rate, decay;

  constexpr explicit AdamWRule(const Update& args)
      : beta1(args.constants.beta1),
        beta2(args.constants.beta2),
        epsilon(args.constants.epsilon),
        correction1(args.state->bias_correction1),
        correction2(args.state->bias_correction2),
        rate(rate_of(args)),
        decay(decay_of(args)) {
    if constexpr (by_reciprocals) {
      correction1 = 1 / correction1;
      correction2 = 1 / std::sqrt(correction2);  // multiplies the root
    }
  }

  constexpr Real next(Real before, Real g, Real& m, Real& v) const {
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    Real step;
    if constexpr (by_reciprocals) {
      step = m * correction1 / (std::sqrt(v) * correction2 + epsilon);
    } else {
      step = m / correction1 / (std::sqrt(v / correction2) + epsilon);
    }
    return before - rate * (step + decay * before);
  }
};

/// SGD with momentum, with decoupled decay, or coupled decay as in torch:
///   b = momentum b + g;  p -= lr (b + weight_decay p)
///   b = momentum b + g + weight_decay p;  p -= lr b
/// Without momentum there is no state b.
template <class Real, bool by_reciprocals>
struct SgdRule {
  static constexpr std::string_view name = "sgd";
  static constexpr int states = 1;
  static constexpr bool narrow_states = false;
  static constexpr bool clipped = true;
  static constexpr bool keeps(const UpdateConstants& constants) { return constants.momentum != 0; }

  Real momentum, rate, decay, coupled;

  constexpr explicit SgdRule(const Update& args)
      : momentum(args.constants.momentum),
        rate(rate_of(args)),
        decay(args.constants.coupled ? 0.0F : decay_of(args)),
        coupled(args.constants.coupled ? decay_of(args) : 0.0F) {}

  constexpr Real next(Real before, Real g, Real& b, Real&) const {
    b = momentum * b + (g + coupled * before);
    return before - rate * (b + decay * before);
  }
};

/// Lion (Chen et al. 2023, algorithm 2) with decoupled decay; sign(0) = 0:
///   p -= lr ( sign(b1 m + (1-b1) g) + weight_decay p );  m = b2 m + (1-b2) g
template <class Real, bool by_reciprocals>
struct LionRule {
  static constexpr std::string_view name = "lion";
  static constexpr int states = 1;
  static constexpr bool narrow_states = true;
  static constexpr bool clipped = true;
  static constexpr bool keeps(const UpdateConstants&) { return true; }

  Real beta1, beta2, rate, decay;

  constexpr explicit LionRule(const Update& args)
      : beta1(args.constants.beta1),
        beta2(args.constants.beta2),
        rate(rate_of(args)),
        decay(decay_of(args)) {}

  constexpr Real next(Real before, Real g, Real& m, Real&) const {
    const Real c = beta1 * m + (1 - beta1) * g;
    const Real sign = (c > 0 ? Real{1} : Real{0}) - (c < 0 ? Real{1} : Real{0});
    m = beta2 * m + (1 - beta2) * g;
    return before - rate * (sign + decay * before);
  }
};

/// The direction of Muon (Jordan 2024), which is then orthogonalized; b starts at 0:
///   b = momentum b + (1 - momentum) g;  p = nesterov ? momentum b + (1 - momentum) g : b
template <class Real, bool by_reciprocals>
struct MuonDirectionRule {
  static constexpr std::string_view name = "muon_direction";
  static constexpr int states = 1;
  static constexpr bool narrow_states = false;
  static constexpr bool clipped = true;
  static constexpr bool keeps(const UpdateConstants&) { return true; }

  Real momentum;
  bool nesterov;

  constexpr explicit MuonDirectionRule(const Update& args)
      : momentum(args.constants.momentum), nesterov(args.constants.nesterov) {}

  constexpr Real next(Real, Real g, Real& b, Real&) const {
    b = momentum * b + (1 - momentum) * g;
    return nesterov ? momentum * b + (1 - momentum) * g : b;
  }
};

/// Muon's step along the orthogonalized direction, which is given as the gradient:
///   p = p (1 - lr weight_decay) - lr scale g
template <class Real, bool by_reciprocals>
struct MuonStepRule {
  static constexpr std::string_view name = "muon_step";
  static constexpr int states = 0;
  static constexpr bool narrow_states = false;
  static constexpr bool clipped = false;
  static constexpr bool keeps(const UpdateConstants&) { return false; }

  Real step, left;

  constexpr explicit MuonStepRule(const Update& args)
      : step(static_cast<Real>(rate_of(args)) * static_cast<Real>(args.constants.scale)),
        left(1 - static_cast<Real>(rate_of(args)) * static_cast<Real>(decay_of(args))) {}

  constexpr Real next(Real before, Real g, Real&, Real&) const { return before * left - step * g; }
};

/// The average of weights, which is the parameter here; the weight is given as the gradient:
///   p = momentum p + (1 - momentum) g
template <class Real, bool by_reciprocals>
struct AverageRule {
  static constexpr std::string_view name = "average";
  static constexpr int states = 0;
  static constexpr bool narrow_states = false;
  static constexpr bool clipped = false;
  static constexpr bool keeps(const UpdateConstants&) { return false; }

  Real kept;

  constexpr explicit AverageRule(const Update& args) : kept(args.constants.momentum) {}

  constexpr Real next(Real before, Real g, Real&, Real&) const {
    return kept * before + (1 - kept) * g;
  }
};

/// Multiplies by a factor that is known only after the update (Update::factor):
///   p = factor p
template <class Real, bool by_reciprocals>
struct ScaleRule {
  static constexpr std::string_view name = "scale";
  static constexpr int states = 0;
  static constexpr bool narrow_states = false;
  static constexpr bool clipped = false;
  static constexpr bool keeps(const UpdateConstants&) { return false; }

  Real factor;

  constexpr explicit ScaleRule(const Update& args) : factor(*args.factor) {}

  constexpr Real next(Real before, Real, Real&, Real&) const { return before * factor; }
};

/// Calls visit.operator()<Rule>() with the rule for `rule`.
template <class Real, bool by_reciprocals, class Visit>
constexpr decltype(auto) with_rule(UpdateRule rule, const Visit& visit) {
  switch (rule) {
    case UpdateRule::lion: return visit.template operator()<LionRule<Real, by_reciprocals>>();
    case UpdateRule::sgd: return visit.template operator()<SgdRule<Real, by_reciprocals>>();
    case UpdateRule::muon_direction:
      return visit.template operator()<MuonDirectionRule<Real, by_reciprocals>>();
    case UpdateRule::muon_step:
      return visit.template operator()<MuonStepRule<Real, by_reciprocals>>();
    case UpdateRule::average: return visit.template operator()<AverageRule<Real, by_reciprocals>>();
    case UpdateRule::scale: return visit.template operator()<ScaleRule<Real, by_reciprocals>>();
    case UpdateRule::adamw: break;
  }
  return visit.template operator()<AdamWRule<Real, by_reciprocals>>();
}
inline constexpr UpdateRule update_rules[] = {
    UpdateRule::adamw,     UpdateRule::sgd,     UpdateRule::lion, UpdateRule::muon_direction,
    UpdateRule::muon_step, UpdateRule::average, UpdateRule::scale};

/// The name of an update in messages and benchmarks, such as "adamw".
constexpr std::string_view name_of(UpdateRule rule) {
  return with_rule<float, false>(rule, [&]<class Rule>() { return Rule::name; });
}

}  // namespace trainctl
