#include "ops/activation.h"

#include <cmath>
#include <limits>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

struct PlainMath {
  using Real = double;
  static constexpr bool by_sigmoid = false;
  static double exp(double x) { return std::exp(x); }
  static double tanh(double x) { return std::tanh(x); }
  static double fma(double a, double b, double c) { return std::fma(a, b, c); }
  static double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
};

template <class T>
double real(const Tensor& x, std::int64_t i) {
  return to_float(x.as<T>()[i]);
}
template <class T>
void put(const Tensor& x, std::int64_t i, double value) {
  x.as<T>()[i] = from_float<T>(static_cast<float>(value));
}

template <class Function>
LimitedGate<Function> limited(const GateForm& form) {
  return {form.offset, form.limit > 0 ? form.limit : std::numeric_limits<double>::infinity()};
}

template <class Function, class T>
void forward(const ActivationArgs& args) {
  const LimitedGate<Function> gated = limited<Function>(args.form);
  for (std::int64_t i = 0; i < args.x.numel(); ++i) {
    const double x = real<T>(args.x, i);
    put<T>(args.y, i, args.up.empty() ? Function::value(x) : gated.value(x, real<T>(args.up, i)));
  }
}

template <class Function, class T>
void backward(const ActivationArgs& args) {
  const LimitedGate<Function> gated = limited<Function>(args.form);
  for (std::int64_t i = 0; i < args.x.numel(); ++i) {
    const double x = real<T>(args.x, i);
    const double dy = real<T>(args.dy, i);
    if (args.up.empty()) {
      put<T>(args.dx, i, Function::times_slope(dy, x));
      continue;
    }
    const double up = real<T>(args.up, i);
    put<T>(args.dx, i, gated.d_gate(dy, x, up));
    put<T>(args.dup, i, gated.d_up(dy, x, up));
  }
}

}  // namespace

void activation_forward_plain(const OpContext&, const ActivationArgs& args) {
  with_activation<PlainMath>(args.kind, [&]<class Function>() {
    with_element_type(args.x.dtype,
                      [&](auto element) { forward<Function, decltype(element)>(args); });
  });
}

void activation_backward_plain(const OpContext&, const ActivationArgs& args) {
  with_activation<PlainMath>(args.kind, [&]<class Function>() {
    with_element_type(args.x.dtype,
                      [&](auto element) { backward<Function, decltype(element)>(args); });
  });
}

}  // namespace trainctl
