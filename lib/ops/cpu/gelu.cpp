#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/ahead.h"
#include "ops/cpu/vector/vector_math.h"

namespace trainctl {

namespace {

// (1 + tanh(u)) / 2 is the logistic function of 2u: one exponential, and no cancellation for large
// negative x.
constexpr float two_root = 1.59576912161F;  // 2 sqrt(2/pi)
constexpr float cubic = 0.044715F;

inline float gelu(float x) { return x * fast_sigmoid(two_root * (x + cubic * x * x * x)); }

inline float gelu_slope(float x) {
  const float gate = fast_sigmoid(two_root * (x + cubic * x * x * x));
  const float inner = two_root * (1.0F + 3.0F * cubic * x * x);
  return gate + x * gate * (1.0F - gate) * inner;
}

template <class T>
void forward(const GeluForward& args) {
  const T* x = args.x.as<T>();
  T* y = args.y.as<T>();
  const auto block = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) y[i] = from_float<T>(gelu(to_float(x[i])));
  };
  for_elements_ahead(args.x.numel(), block, x, y);
}

template <class T>
void backward(const GeluBackward& args) {
  const T* x = args.x.as<T>();
  const T* dy = args.dy.as<T>();
  T* dx = args.dx.as<T>();
  const auto block = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      dx[i] = from_float<T>(to_float(dy[i]) * gelu_slope(to_float(x[i])));
    }
  };
  for_elements_ahead(args.x.numel(), block, x, dy, dx);
}

}  // namespace

void gelu_forward_cpu(const OpContext&, const GeluForward& args) {
  with_element_type(args.x.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void gelu_backward_cpu(const OpContext&, const GeluBackward& args) {
  with_element_type(args.x.dtype, [&](auto element) { backward<decltype(element)>(args); });
}

}  // namespace trainctl
