// The activation of a feed-forward layer: y = act(x), or gated y = act(x) * (up + offset). A limit
// L clamps the gate to min(x, L) and up to [-L, L]; clamped values pass no gradient.
#pragma once

#include <string_view>

#include "base/kinds.h"
#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

/// The offset and the limit of a gated activation.
struct GateForm {
  float offset = 0;  // added to up
  float limit = 0;   // L; no limit if 0
  bool is_plain() const { return offset == 0 && limit == 0; }
  bool operator==(const GateForm&) const = default;
};

/// The forward pass takes y, the backward pass the gradients.
struct ActivationArgs {
  Activation kind = Activation::gelu;
  Tensor x;      // any shape, fp32, bf16 or fp16; the gate, if gated
  Tensor y{};    // as x, overwritten
  Tensor dy{};   // as x
  Tensor dx{};   // as x, overwritten; may be the same memory as dy
  Tensor up{};   // as x; absent if not gated
  Tensor dup{};  // only if gated: as x, overwritten; may share memory with dy, unless dx does
  GateForm form{};
};

void activation_forward(const OpContext& context, const ActivationArgs& args);
void activation_backward(const OpContext& context, const ActivationArgs& args);

// The activation functions, shared by all backends. Math is a backend's real type, its exp, tanh,
// sigmoid and fma, and whether it computes GELU by the logistic function (one exponential, no
// cancellation far below zero) or by tanh. A function has its value, a factor times its value, and
// a factor times its slope, each in a fixed order of operations that keeps results bit-identical. A
// new function is a struct, a case of with_activation and a row of name_of.

/// GELU, tanh form (Hendrycks and Gimpel 2016): x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))),
/// where (1 + tanh(u)) / 2 is the logistic function of 2u.
template <class Math>
struct Gelu {
  using Real = typename Math::Real;
  static constexpr Real root = static_cast<Real>(0.79788456080286535588);  // sqrt(2/pi)
  static constexpr Real two_root = static_cast<Real>(1.59576912160573071176);
  static constexpr Real cubic = static_cast<Real>(0.044715);

  static constexpr Real value(Real x) { return times_value(Real{1}, x); }
  static constexpr Real times_value(Real factor, Real x) {
    if constexpr (Math::by_sigmoid) {
      return factor * x * Math::sigmoid(two_root * (x + cubic * x * x * x));
    } else {
      return factor * (Real(0.5) * x * (1 + Math::tanh(root * (x + cubic * x * x * x))));
    }
  }
  static constexpr Real times_slope(Real factor, Real x) {
    if constexpr (Math::by_sigmoid) {
      const Real gate = Math::sigmoid(two_root * (x + cubic * x * x * x));
      const Real inner = two_root * (1 + 3 * cubic * x * x);
      return factor * (gate + x * gate * (1 - gate) * inner);
    } else {
      const Real t = Math::tanh(root * (x + cubic * x * x * x));
      const Real inner = root * (1 + 3 * cubic * x * x);
      return factor * (Real(0.5) * (1 + t) + Real(0.5) * x * (1 - t * t) * inner);
    }
  }
};

/// SiLU: x / (1 + exp(-x)). The gated form is SwiGLU (Shazeer 2020).
template <class Math>
struct Silu {
  using Real = typename Math::Real;
  static constexpr Real value(Real x) {
    if constexpr (Math::by_sigmoid) {
      return x * Math::sigmoid(x);
    } else {
      return x / (1 + Math::exp(-x));
    }
  }
  static constexpr Real times_value(Real factor, Real x) { return factor * x * Math::sigmoid(x); }
  static constexpr Real times_slope(Real factor, Real x) {
    const Real sigmoid = Math::sigmoid(x);
    return factor * sigmoid * Math::fma(x, 1 - sigmoid, Real{1});
  }
};

/// GELU as a logistic function (Hendrycks and Gimpel 2016, section 2): x / (1 + exp(-1.702 x)).
template <class Math>
struct QuickGelu {
  using Real = typename Math::Real;
  static constexpr Real alpha = static_cast<Real>(1.702);

  static constexpr Real value(Real x) { return x * Math::sigmoid(alpha * x); }
  static constexpr Real times_value(Real factor, Real x) { return factor * value(x); }
  static constexpr Real times_slope(Real factor, Real x) {
    const Real sigmoid = Math::sigmoid(alpha * x);
    return factor * sigmoid * Math::fma(alpha * x, 1 - sigmoid, Real{1});
  }
};

/// The square of ReLU (So et al. 2021): max(x, 0)^2.
template <class Math>
struct Relu2 {
  using Real = typename Math::Real;
  static constexpr Real positive(Real x) { return x < 0 ? Real{0} : x; }
  static constexpr Real value(Real x) { return positive(x) * positive(x); }
  static constexpr Real times_value(Real factor, Real x) { return factor * value(x); }
  static constexpr Real times_slope(Real factor, Real x) { return factor * (2 * positive(x)); }
};

/// The logistic function. The gated form is GLU (Dauphin et al. 2017).
template <class Math>
struct Sigmoid {
  using Real = typename Math::Real;
  static constexpr Real value(Real x) { return Math::sigmoid(x); }
  static constexpr Real times_value(Real factor, Real x) { return factor * Math::sigmoid(x); }
  static constexpr Real times_slope(Real factor, Real x) {
    const Real sigmoid = Math::sigmoid(x);
    return factor * (sigmoid * (1 - sigmoid));
  }
};

/// Calls visit.operator()<Function>() with the function for `kind`.
template <class Math, class Visit>
constexpr decltype(auto) with_activation(Activation kind, const Visit& visit) {
  switch (kind) {
    case Activation::silu: return visit.template operator()<Silu<Math>>();
    case Activation::relu2: return visit.template operator()<Relu2<Math>>();
    case Activation::quick_gelu: return visit.template operator()<QuickGelu<Math>>();
    case Activation::sigmoid: return visit.template operator()<Sigmoid<Math>>();
    case Activation::gelu: break;
  }
  return visit.template operator()<Gelu<Math>>();
}

/// A gated activation with an offset and a limit (GateForm). L is infinity if there is no limit.
template <class Function>
struct LimitedGate {
  using Real = typename Function::Real;
  Real offset, limit;

  constexpr Real gate(Real x) const { return x > limit ? limit : x; }
  constexpr Real up(Real u) const { return (u > limit ? limit : u < -limit ? -limit : u) + offset; }
  constexpr Real value(Real x, Real u) const { return up(u) * Function::value(gate(x)); }
  constexpr Real d_gate(Real dy, Real x, Real u) const {
    return x > limit ? Real{0} : up(u) * (dy * Function::times_slope(1, x));
  }
  constexpr Real d_up(Real dy, Real x, Real u) const {
    return u > limit || u < -limit ? Real{0} : dy * Function::times_value(1, gate(x));
  }
};

/// The names of an activation's operations in messages and benchmarks, such as "swiglu_backward".
constexpr std::string_view name_of_forward(Activation kind, bool gated) {
  // By kind; plain, gated.
  constexpr std::string_view names[][2] = {{"gelu_forward", "geglu_forward"},
                                           {"silu_forward", "swiglu_forward"},
                                           {"relu2_forward", "reglu2_forward"},
                                           {"quick_gelu_forward", "quick_geglu_forward"},
                                           {"sigmoid_forward", "glu_forward"}};
  return names[static_cast<int>(kind)][gated ? 1 : 0];
}
constexpr std::string_view name_of_backward(Activation kind, bool gated) {
  constexpr std::string_view names[][2] = {{"gelu_backward", "geglu_backward"},
                                           {"silu_backward", "swiglu_backward"},
                                           {"relu2_backward", "reglu2_backward"},
                                           {"quick_gelu_backward", "quick_geglu_backward"},
                                           {"sigmoid_backward", "glu_backward"}};
  return names[static_cast<int>(kind)][gated ? 1 : 0];
}

}  // namespace trainctl
