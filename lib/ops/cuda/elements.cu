// Kernels that treat each element by itself.
#include "ops/add.h"
#include "ops/cast.h"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"
#include "ops/gelu.h"
#include "ops/swiglu.h"

namespace trainctl::cuda {
namespace {

template <class T, class Other>
struct AddWork {
  const T* a;
  const Other* b;
  T* y;

  template <int width>
  __device__ void run(std::int64_t at) const {
    float sum[width];
    float other[width];
    load<width>(a + at, sum);
    load<width>(b + at, other);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] += other[i];
    store<width>(y + at, sum);
  }
};

template <class From, class To>
struct CastWork {
  const From* x;
  To* y;

  template <int width>
  __device__ void run(std::int64_t at) const {
    float value[width];
    load<width>(x + at, value);
    store<width>(y + at, value);
  }
};

constexpr float root = 0.797884560802865356F;  // sqrt(2/pi)
constexpr float cubic = 0.044715F;

template <class T>
struct GeluWork {
  const T* x;
  T* y;

  template <int width>
  __device__ void run(std::int64_t at) const {
    float value[width];
    load<width>(x + at, value);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float v = value[i];
      value[i] = 0.5F * v * (1.0F + tanhf(root * (v + cubic * v * v * v)));
    }
    store<width>(y + at, value);
  }
};

template <class T>
struct GeluBackwardWork {
  const T* x;
  const T* dy;
  T* dx;

  template <int width>
  __device__ void run(std::int64_t at) const {
    float value[width];
    float gradient[width];
    load<width>(x + at, value);
    load<width>(dy + at, gradient);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float v = value[i];
      const float t = tanhf(root * (v + cubic * v * v * v));
      const float inner = root * (1.0F + 3.0F * cubic * v * v);
      gradient[i] *= 0.5F * (1.0F + t) + 0.5F * v * (1.0F - t * t) * inner;
    }
    store<width>(dx + at, gradient);
  }
};

template <class T>
struct SwigluWork {
  const T* gate;
  const T* up;
  T* y;

  template <int width>
  __device__ void run(std::int64_t at) const {
    float g[width];
    float u[width];
    load<width>(gate + at, g);
    load<width>(up + at, u);
#pragma unroll
    for (int i = 0; i < width; ++i) u[i] *= g[i] / (1.0F + expf(-g[i]));
    store<width>(y + at, u);
  }
};

template <class T>
struct SwigluBackwardWork {
  const T* gate;
  const T* up;
  const T* dy;
  T* dgate;
  T* dup;

  template <int width>
  __device__ void run(std::int64_t at) const {
    float g[width];
    float u[width];
    float d[width];
    load<width>(gate + at, g);
    load<width>(up + at, u);
    load<width>(dy + at, d);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float sigmoid = 1.0F / (1.0F + expf(-g[i]));
      const float slope = sigmoid * (1.0F + g[i] * (1.0F - sigmoid));
      u[i] *= d[i] * slope;
      d[i] *= g[i] * sigmoid;
    }
    store<width>(dgate + at, u);
    store<width>(dup + at, d);
  }
};

template <class T, class Other>
void add_to(const OpContext& context, const Add& args) {
  for_elements<vector_width<T>>(
      context, args.a.numel(), all_aligned({args.a.data, args.b.data, args.y.data}),
      AddWork<T, Other>{args.a.elements<T>(), args.b.elements<Other>(), args.y.elements<T>()});
}

}  // namespace

void add(const OpContext& context, const Add& args) {
  with_element_type(args.a.dtype, [&](auto element) {
    using T = decltype(element);
    args.b.dtype == args.a.dtype ? add_to<T, T>(context, args) : add_to<T, float>(context, args);
  });
}

void cast(const OpContext& context, const Cast& args) {
  with_element_type(args.x.dtype, [&](auto from) {
    with_element_type(args.y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      for_elements<8>(context, args.x.numel(), all_aligned({args.x.data, args.y.data}),
                      CastWork<From, To>{args.x.elements<From>(), args.y.elements<To>()});
    });
  });
}

void gelu_forward(const OpContext& context, const GeluForward& args) {
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    for_elements<vector_width<T>>(context, args.x.numel(), all_aligned({args.x.data, args.y.data}),
                                  GeluWork<T>{args.x.elements<T>(), args.y.elements<T>()});
  });
}

void gelu_backward(const OpContext& context, const GeluBackward& args) {
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    for_elements<vector_width<T>>(
        context, args.x.numel(), all_aligned({args.x.data, args.dy.data, args.dx.data}),
        GeluBackwardWork<T>{args.x.elements<T>(), args.dy.elements<T>(), args.dx.elements<T>()});
  });
}

void swiglu_forward(const OpContext& context, const SwigluForward& args) {
  with_element_type(args.gate.dtype, [&](auto element) {
    using T = decltype(element);
    for_elements<vector_width<T>>(
        context, args.gate.numel(), all_aligned({args.gate.data, args.up.data, args.y.data}),
        SwigluWork<T>{args.gate.elements<T>(), args.up.elements<T>(), args.y.elements<T>()});
  });
}

void swiglu_backward(const OpContext& context, const SwigluBackward& args) {
  with_element_type(args.gate.dtype, [&](auto element) {
    using T = decltype(element);
    const bool wide =
        all_aligned({args.gate.data, args.up.data, args.dy.data, args.dgate.data, args.dup.data});
    for_elements<vector_width<T>>(
        context, args.gate.numel(), wide,
        SwigluBackwardWork<T>{args.gate.elements<T>(), args.up.elements<T>(), args.dy.elements<T>(),
                              args.dgate.elements<T>(), args.dup.elements<T>()});
  });
}

}  // namespace trainctl::cuda
