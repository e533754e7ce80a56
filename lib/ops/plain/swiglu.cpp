#include <cmath>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

template <class T>
void forward(const SwigluForward& args) {
  for (std::int64_t i = 0; i < args.gate.numel(); ++i) {
    const double gate = to_float(args.gate.as<T>()[i]);
    const double y = gate / (1.0 + std::exp(-gate)) * to_float(args.up.as<T>()[i]);
    args.y.as<T>()[i] = from_float<T>(static_cast<float>(y));
  }
}

template <class T>
void backward(const SwigluBackward& args) {
  for (std::int64_t i = 0; i < args.gate.numel(); ++i) {
    const double gate = to_float(args.gate.as<T>()[i]);
    const double dy = to_float(args.dy.as<T>()[i]);
    const double sigmoid = 1.0 / (1.0 + std::exp(-gate));
    const double slope = sigmoid * (1.0 + gate * (1.0 - sigmoid));
    const double dgate = dy * to_float(args.up.as<T>()[i]) * slope;
    args.dgate.as<T>()[i] = from_float<T>(static_cast<float>(dgate));
    args.dup.as<T>()[i] = from_float<T>(static_cast<float>(dy * gate * sigmoid));
  }
}

}  // namespace

void swiglu_forward_plain(const OpContext&, const SwigluForward& args) {
  with_element_type(args.gate.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void swiglu_backward_plain(const OpContext&, const SwigluBackward& args) {
  with_element_type(args.gate.dtype, [&](auto element) { backward<decltype(element)>(args); });
}

}  // namespace trainctl
