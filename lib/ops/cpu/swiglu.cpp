#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/ahead.h"
#include "ops/cpu/vector/vector_math.h"

namespace trainctl {

namespace {

template <class T>
void forward(const SwigluForward& args) {
  const T* gate = args.gate.as<T>();
  const T* up = args.up.as<T>();
  T* y = args.y.as<T>();
  const auto block = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float x = to_float(gate[i]);
      y[i] = from_float<T>(x * fast_sigmoid(x) * to_float(up[i]));
    }
  };
  for_elements_ahead(args.gate.numel(), block, gate, up, y);
}

template <class T>
void backward(const SwigluBackward& args) {
  const T* gate = args.gate.as<T>();
  const T* up = args.up.as<T>();
  const T* dy = args.dy.as<T>();
  T* dgate = args.dgate.as<T>();
  T* dup = args.dup.as<T>();
  const auto block = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float x = to_float(gate[i]);
      const float d = to_float(dy[i]);
      const float sigmoid = fast_sigmoid(x);
      dup[i] = from_float<T>(d * x * sigmoid);
      dgate[i] = from_float<T>(d * to_float(up[i]) * sigmoid * (1.0F + x * (1.0F - sigmoid)));
    }
  };
  for_elements_ahead(args.gate.numel(), block, gate, up, dy, dgate, dup);
}

}  // namespace

void swiglu_forward_cpu(const OpContext&, const SwigluForward& args) {
  with_element_type(args.gate.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void swiglu_backward_cpu(const OpContext&, const SwigluBackward& args) {
  with_element_type(args.gate.dtype, [&](auto element) { backward<decltype(element)>(args); });
}

}  // namespace trainctl
