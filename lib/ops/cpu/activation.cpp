#include "ops/activation.h"

#include <limits>

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/vector_math.h"

namespace trainctl {

namespace {

struct VectorMath {
  using Real = float;
  static constexpr bool by_sigmoid = true;
  static float sigmoid(float x) { return fast_sigmoid(x); }
  // Explicit, because compilers use fma in vector code but not in the scalar rest of a loop.
  static float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
};

template <class Function, class T>
void forward(const ActivationArgs& args) {
  const T* x = args.x.as<T>();
  T* y = args.y.as<T>();
  const auto block = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      y[i] = from_float<T>(Function::value(to_float(x[i])));
    }
  };
  for_elements_ahead(args.x.numel(), block, x, y);
}

template <class Function, class T>
void gated_forward(const ActivationArgs& args) {
  const T* x = args.x.as<T>();
  const T* up = args.up.as<T>();
  T* y = args.y.as<T>();
  const auto block = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      y[i] = from_float<T>(Function::value(to_float(x[i])) * to_float(up[i]));
    }
  };
  for_elements_ahead(args.x.numel(), block, x, up, y);
}

template <class Function>
LimitedGate<Function> limited(const GateForm& form) {
  return {form.offset, form.limit > 0 ? form.limit : std::numeric_limits<float>::infinity()};
}

template <class Function, class T>
void limited_forward(const ActivationArgs& args) {
  const LimitedGate<Function> gated = limited<Function>(args.form);
  const T* x = args.x.as<T>();
  const T* up = args.up.as<T>();
  T* y = args.y.as<T>();
  const auto block = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      y[i] = from_float<T>(gated.value(to_float(x[i]), to_float(up[i])));
    }
  };
  for_elements_ahead(args.x.numel(), block, x, up, y);
}

template <class Function, class T>
void backward(const ActivationArgs& args) {
  const T* x = args.x.as<T>();
  const T* dy = args.dy.as<T>();
  T* dx = args.dx.as<T>();
  const auto block = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      dx[i] = from_float<T>(Function::times_slope(to_float(dy[i]), to_float(x[i])));
    }
  };
  for_elements_ahead(args.x.numel(), block, x, dy, dx);
}

template <class Function, class T>
void gated_backward(const ActivationArgs& args) {
  const T* x = args.x.as<T>();
  const T* up = args.up.as<T>();
  const T* dy = args.dy.as<T>();
  T* dx = args.dx.as<T>();
  T* dup = args.dup.as<T>();
  const auto block = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float gate = to_float(x[i]);
      const float d = to_float(dy[i]);
      dup[i] = from_float<T>(Function::times_value(d, gate));
      dx[i] = from_float<T>(Function::times_slope(d * to_float(up[i]), gate));
    }
  };
  for_elements_ahead(args.x.numel(), block, x, up, dy, dx, dup);
}

template <class Function, class T>
void limited_backward(const ActivationArgs& args) {
  const LimitedGate<Function> gated = limited<Function>(args.form);
  const T* x = args.x.as<T>();
  const T* up = args.up.as<T>();
  const T* dy = args.dy.as<T>();
  T* dx = args.dx.as<T>();
  T* dup = args.dup.as<T>();
  const auto block = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float gate = to_float(x[i]);
      const float u = to_float(up[i]);
      const float d = to_float(dy[i]);
      dup[i] = from_float<T>(gated.d_up(d, gate, u));
      dx[i] = from_float<T>(gated.d_gate(d, gate, u));
    }
  };
  for_elements_ahead(args.x.numel(), block, x, up, dy, dx, dup);
}

}  // namespace

void activation_forward_cpu(const OpContext&, const ActivationArgs& args) {
  with_activation<VectorMath>(args.kind, [&]<class Function>() {
    with_element_type(args.x.dtype, [&](auto element) {
      using T = decltype(element);
      if (args.up.empty()) return forward<Function, T>(args);
      args.form.is_plain() ? gated_forward<Function, T>(args) : limited_forward<Function, T>(args);
    });
  });
}

void activation_backward_cpu(const OpContext&, const ActivationArgs& args) {
  with_activation<VectorMath>(args.kind, [&]<class Function>() {
    with_element_type(args.x.dtype, [&](auto element) {
      using T = decltype(element);
      if (args.up.empty()) return backward<Function, T>(args);
      args.form.is_plain() ? gated_backward<Function, T>(args)
                           : limited_backward<Function, T>(args);
    });
  });
}

}  // namespace trainctl
