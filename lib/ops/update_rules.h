// The formulas of elementwise optimizers, shared by all back ends. A rule has the numbers of a step
// and turns one element's parameter, clipped gradient and states into the new ones. Real is the
// type in which a back end computes; a rule `by_reciprocals` multiplies by numbers of the step
// instead of dividing, which is faster and differs in the last bits. A new rule is a struct and a
// case of with_rule.
#pragma once

#include <cmath>
#include <string_view>

#include "ops/update.h"

namespace trainctl {

/// AdamW (Loshchilov and Hutter 2019, algorithm 2):
///   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
///   p -= lr ( (m / bias_correction1) / (sqrt(v / bias_correction2) + eps) + weight_decay p )
template <class Real, bool by_reciprocals>
struct AdamWRule {
  static constexpr std::string_view name = "adamw";
  static constexpr int states = 2;
  static constexpr bool narrow_states = true;  // they may be bf16
  static constexpr bool keeps(const UpdateConstants&) { return true; }

  Real beta1, beta2, epsilon, correction1, correction2, rate, decay;

  constexpr explicit AdamWRule(const Update& args)
      : beta1(args.constants.beta1),
        beta2(args.constants.beta2),
        epsilon(args.constants.epsilon),
        correction1(args.state->bias_correction1),
        correction2(args.state->bias_correction2),
        rate(args.state->learning_rate),
        decay(args.decay ? args.state->weight_decay : 0.0F) {
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

/// SGD with momentum, whose decay is decoupled, or coupled as in torch:
///   b = momentum b + g;  p -= lr (b + weight_decay p)
///   b = momentum b + g + weight_decay p;  p -= lr b
/// Without momentum there is no b.
template <class Real, bool by_reciprocals>
struct SgdRule {
  static constexpr std::string_view name = "sgd";
  static constexpr int states = 1;
  static constexpr bool narrow_states = false;
  static constexpr bool keeps(const UpdateConstants& constants) { return constants.momentum != 0; }

  Real momentum, rate, decay, coupled;

  constexpr explicit SgdRule(const Update& args)
      : momentum(args.constants.momentum),
        rate(args.state->learning_rate),
        decay(args.decay && !args.constants.coupled ? args.state->weight_decay : 0.0F),
        coupled(args.decay && args.constants.coupled ? args.state->weight_decay : 0.0F) {}

  constexpr Real next(Real before, Real g, Real& b, Real&) const {
    b = momentum * b + (g + coupled * before);
    return before - rate * (b + decay * before);
  }
};

/// Lion (Chen et al. 2023, algorithm 2), whose decay is decoupled; sign(0) = 0:
///   p -= lr ( sign(b1 m + (1-b1) g) + weight_decay p );  m = b2 m + (1-b2) g
template <class Real, bool by_reciprocals>
struct LionRule {
  static constexpr std::string_view name = "lion";
  static constexpr int states = 1;
  static constexpr bool narrow_states = true;
  static constexpr bool keeps(const UpdateConstants&) { return true; }

  Real beta1, beta2, rate, decay;

  constexpr explicit LionRule(const Update& args)
      : beta1(args.constants.beta1),
        beta2(args.constants.beta2),
        rate(args.state->learning_rate),
        decay(args.decay ? args.state->weight_decay : 0.0F) {}

  constexpr Real next(Real before, Real g, Real& m, Real&) const {
    const Real c = beta1 * m + (1 - beta1) * g;
    const Real sign = (c > 0 ? Real{1} : Real{0}) - (c < 0 ? Real{1} : Real{0});
    m = beta2 * m + (1 - beta2) * g;
    return before - rate * (sign + decay * before);
  }
};

/// visit.operator()<Rule>() with the rule of `type`.
template <class Real, bool by_reciprocals, class Visit>
constexpr decltype(auto) with_rule(OptimizerType type, const Visit& visit) {
  switch (type) {
    case OptimizerType::lion: return visit.template operator()<LionRule<Real, by_reciprocals>>();
    case OptimizerType::sgd: return visit.template operator()<SgdRule<Real, by_reciprocals>>();
    case OptimizerType::adamw: break;
  }
  return visit.template operator()<AdamWRule<Real, by_reciprocals>>();
}

/// "adamw": what messages and benchmarks call an update.
constexpr std::string_view name_of(OptimizerType type) {
  return with_rule<float, false>(type, [&]<class Rule>() { return Rule::name; });
}

}  // namespace trainctl
