#include <cmath>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

constexpr double root = 0.79788456080286535588;  // sqrt(2/pi)
constexpr double cubic = 0.044715;

template <class T>
void forward(const GeluForward& args) {
  for (std::int64_t i = 0; i < args.x.numel(); ++i) {
    const double x = to_float(args.x.as<T>()[i]);
    const double y = 0.5 * x * (1.0 + std::tanh(root * (x + cubic * x * x * x)));
    args.y.as<T>()[i] = from_float<T>(static_cast<float>(y));
  }
}

template <class T>
void backward(const GeluBackward& args) {
  for (std::int64_t i = 0; i < args.x.numel(); ++i) {
    const double x = to_float(args.x.as<T>()[i]);
    const double t = std::tanh(root * (x + cubic * x * x * x));
    const double slope =
        0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * cubic * x * x);
    args.dx.as<T>()[i] = from_float<T>(static_cast<float>(to_float(args.dy.as<T>()[i]) * slope));
  }
}

}  // namespace

void gelu_forward_plain(const OpContext&, const GeluForward& args) {
  with_element_type(args.x.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void gelu_backward_plain(const OpContext&, const GeluBackward& args) {
  with_element_type(args.x.dtype, [&](auto element) { backward<decltype(element)>(args); });
}

}  // namespace trainctl
