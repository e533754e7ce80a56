#include "ops/activation_functions.h"

#include <cmath>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

struct PlainMath {
  using Real = double;
  static constexpr bool by_sigmoid = false;
  static double exp(double x) { return std::exp(x); }
  static double tanh(double x) { return std::tanh(x); }
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

template <class Function, class T>
void forward(const ActivationForward& args) {
  for (std::int64_t i = 0; i < args.x.numel(); ++i) {
    const double value = Function::value(real<T>(args.x, i));
    put<T>(args.y, i, args.up.empty() ? value : value * real<T>(args.up, i));
  }
}

template <class Function, class T>
void backward(const ActivationBackward& args) {
  for (std::int64_t i = 0; i < args.x.numel(); ++i) {
    const double x = real<T>(args.x, i);
    const double dy = real<T>(args.dy, i);
    const double factor = args.up.empty() ? dy : dy * real<T>(args.up, i);
    put<T>(args.dx, i, Function::times_slope(factor, x));
    if (!args.dup.empty()) put<T>(args.dup, i, Function::times_value(dy, x));
  }
}

}  // namespace

void activation_forward_plain(const OpContext&, const ActivationForward& args) {
  with_activation<PlainMath>(args.kind, [&]<class Function>() {
    with_element_type(args.x.dtype,
                      [&](auto element) { forward<Function, decltype(element)>(args); });
  });
}

void activation_backward_plain(const OpContext&, const ActivationBackward& args) {
  with_activation<PlainMath>(args.kind, [&]<class Function>() {
    with_element_type(args.x.dtype,
                      [&](auto element) { backward<Function, decltype(element)>(args); });
  });
}

}  // namespace trainctl
