// Elementwise kernels.

#include "base/integers.h"
#include "base/philox.h"
#include "ops/activation.h"
#include "ops/cuda/attention_runs.cuh"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"
#include "ops/elementwise.h"

namespace trainctl::cuda {
namespace {

template <class T, class Other>
struct AddWork {
  const T* a;  // may be null
  const Other* b;
  T* y;
  float factor;

  template <int width>
  __device__ void run(std::int64_t at) const {
    float sum[width] = {};
    float other[width];
    if (a != nullptr) load<width>(a + at, sum);
    load<width>(b + at, other);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] += factor * other[i];
    store<width>(y + at, sum);
  }
};

template <class X, class Y, class Z>
struct ScaledSumWork {
  const X* x;
  const Y* y;  // may be null
  Z* z;
  float alpha, beta;
  const double* squares;  // may be null
  float least;

  template <int width>
  __device__ void run(std::int64_t at) const {
    const float factor = squares == nullptr ? alpha : divided(alpha, sqrt(*squares), least);
    float sum[width];
    float other[width] = {};
    load<width>(x + at, sum);
    if (y != nullptr) load<width>(y + at, other);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] = factor * sum[i] + beta * other[i];
    store<width>(z + at, sum);
  }
};

struct LargestOf {
  const float* x;
  std::int64_t count;
  unsigned* key;
  const std::uint8_t* real;  // per query; if null, all numbers count
  Runs queries;
  int query_length, heads;
};

__global__ void __launch_bounds__(block_threads)
    largest_kernel(const __grid_constant__ LargestOf args) {
  unsigned own = 0;
  for (std::int64_t i = grid_thread(); i < args.count; i += grid_threads()) {
    const bool counts = args.real == nullptr ||
                        args.real[row_of(args.queries, i, args.query_length, args.heads)] != 0;
    if (counts) own = max(own, ordered_key(args.x[i]));
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    own = max(own, __shfl_xor_sync(whole_warp, own, offset));
  }
  if (threadIdx.x % 32 == 0) atomicMax(args.key, own);
}

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

struct DeviceMath {
  using Real = float;
  static constexpr bool by_sigmoid = false;
  __host__ __device__ static float exp(float x) { return expf(x); }
  __host__ __device__ static float tanh(float x) { return tanhf(x); }
  __host__ __device__ static float fma(float a, float b, float c) { return fmaf(a, b, c); }
  __host__ __device__ static float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }
};

template <class Function, class T>
struct ActivationWork {
  const T* x;
  T* y;

  template <int width>
  __device__ void run(std::int64_t at) const {
    float value[width];
    load<width>(x + at, value);
#pragma unroll
    for (int i = 0; i < width; ++i) value[i] = Function::value(value[i]);
    store<width>(y + at, value);
  }
};

template <class Function, class T>
struct ActivationBackwardWork {
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
    for (int i = 0; i < width; ++i) gradient[i] *= Function::times_slope(1.0F, value[i]);
    store<width>(dx + at, gradient);
  }
};

template <class Function, class T>
struct GatedWork {
  const T* x;
  const T* up;
  T* y;
  LimitedGate<Function> gated;

  template <int width>
  __device__ void run(std::int64_t at) const {
    float gate[width];
    float u[width];
    load<width>(x + at, gate);
    load<width>(up + at, u);
#pragma unroll
    for (int i = 0; i < width; ++i) u[i] = gated.value(gate[i], u[i]);
    store<width>(y + at, u);
  }
};

template <class Function, class T>
struct GatedBackwardWork {
  const T* x;
  const T* up;
  const T* dy;
  T* dx;
  T* dup;
  LimitedGate<Function> gated;

  template <int width>
  __device__ void run(std::int64_t at) const {
    float gate[width];
    float u[width];
    float d[width];
    load<width>(x + at, gate);
    load<width>(up + at, u);
    load<width>(dy + at, d);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float d_gate = gated.d_gate(d[i], gate[i], u[i]);
      d[i] = gated.d_up(d[i], gate[i], u[i]);
      u[i] = d_gate;
    }
    store<width>(dx + at, u);
    store<width>(dup + at, d);
  }
};

template <class Function>
LimitedGate<Function> limited(const GateForm& form) {
  return {form.offset, form.limit > 0 ? form.limit : INFINITY};
}

template <class Function, class T>
void activate(const OpContext& context, const ActivationArgs& args) {
  const bool wide = all_aligned({args.x.data, args.up.data, args.y.data});
  const T* x = args.x.elements<T>();
  T* y = args.y.elements<T>();
  if (args.up.empty()) {
    for_elements<vector_width<T>>(context, args.x.numel(), wide, ActivationWork<Function, T>{x, y});
  } else {
    for_elements<vector_width<T>>(
        context, args.x.numel(), wide,
        GatedWork<Function, T>{x, args.up.elements<T>(), y, limited<Function>(args.form)});
  }
}

template <class Function, class T>
void activate_backward(const OpContext& context, const ActivationArgs& args) {
  const bool wide =
      all_aligned({args.x.data, args.up.data, args.dy.data, args.dx.data, args.dup.data});
  const T* x = args.x.elements<T>();
  const T* dy = args.dy.elements<T>();
  T* dx = args.dx.elements<T>();
  if (args.up.empty()) {
    for_elements<vector_width<T>>(context, args.x.numel(), wide,
                                  ActivationBackwardWork<Function, T>{x, dy, dx});
  } else {
    for_elements<vector_width<T>>(
        context, args.x.numel(), wide,
        GatedBackwardWork<Function, T>{x, args.up.elements<T>(), dy, dx, args.dup.elements<T>(),
                                       limited<Function>(args.form)});
  }
}

template <class T, class Other>
void add_to(const OpContext& context, const Add& args) {
  for_elements<vector_width<T>>(
      context, args.y.numel(), all_aligned({args.a.data, args.b.data, args.y.data}),
      AddWork<T, Other>{args.a.empty() ? nullptr : args.a.elements<T>(), args.b.elements<Other>(),
                        args.y.elements<T>(), args.factor});
}

template <class X, class Y, class Z>
void sum_scaled(const OpContext& context, const ScaledSum& args) {
  const bool wide = all_aligned({args.x.data, args.y.data, args.z.data});
  const Y* y = args.y.empty() ? nullptr : args.y.elements<Y>();
  for_elements<4>(context, args.x.numel(), wide,
                  ScaledSumWork<X, Y, Z>{args.x.elements<X>(), y, args.z.elements<Z>(), args.alpha,
                                         args.beta, args.squares, args.least});
}

}  // namespace

void scaled_sum(const OpContext& context, const ScaledSum& args) {
  with_fp32_or_bf16(args.x, [&](auto x) {
    with_fp32_or_bf16(args.y, [&](auto y) {
      with_fp32_or_bf16(args.z, [&](auto z) {
        sum_scaled<decltype(x), decltype(y), decltype(z)>(context, args);
      });
    });
  });
}

void largest(const OpContext& context, const Largest& args) {
  constexpr std::int64_t each = 16;  // numbers per thread, so that few threads update the key
  const LargestOf all{args.x.elements<float>(),
                      args.x.numel(),
                      static_cast<unsigned*>(args.key.data),
                      static_cast<const std::uint8_t*>(args.real.data),
                      Runs::of(args.shape.queries()),
                      static_cast<int>(args.shape.query_length),
                      static_cast<int>(args.shape.heads)};
  launch(largest_kernel, {blocks_for(all.count, each * block_threads), dim3(block_threads)},
         stream_of(context), all);
}

void add(const OpContext& context, const Add& args) {
  with_element_type(args.y.dtype, [&](auto element) {
    using T = decltype(element);
    args.b.dtype == args.y.dtype ? add_to<T, T>(context, args) : add_to<T, float>(context, args);
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

void activation_forward(const OpContext& context, const ActivationArgs& args) {
  with_activation<DeviceMath>(args.kind, [&]<class Function>() {
    with_element_type(args.x.dtype,
                      [&](auto element) { activate<Function, decltype(element)>(context, args); });
  });
}

void activation_backward(const OpContext& context, const ActivationArgs& args) {
  with_activation<DeviceMath>(args.kind, [&]<class Function>() {
    with_element_type(args.x.dtype, [&](auto element) {
      activate_backward<Function, decltype(element)>(context, args);
    });
  });
}

// Dropout and normal values: each element uses its own index in a Philox sequence.
namespace {

template <class T>
struct DropoutWork {
  T* x;
  const std::int64_t* token;
  std::int64_t columns, first_feature, features;
  const StepState* state;
  std::int64_t site;
  float probability;

  /// A pack must lie in one row: `width` divides the columns, or is 1.
  template <int width>
  __device__ void run(std::int64_t at) const {
    const Philox random(state->seed, dropout_stream(state->step, site));
    const float scale = 1.0F / (1.0F - probability);
    const std::int64_t row = at / columns;
    const auto first =
        static_cast<std::uint64_t>(token[row] * features + first_feature + at % columns);
    float value[width];
    float chance[width];
    load<width>(x + at, value);
    if (width % 4 == 0 && first % 4 == 0) {
#pragma unroll
      for (int i = 0; i < width; ++i) {  // four elements share a Philox block
        if (i % 4 != 0) continue;
        const auto words = random.block(first / 4 + static_cast<std::uint64_t>(i / 4));
        for (int j = 0; j < 4 && i + j < width; ++j) chance[i + j] = Philox::uniform_of(words[j]);
      }
    } else {
      for (int i = 0; i < width; ++i) {
        chance[i] = random.uniform(first + static_cast<std::uint64_t>(i));
      }
    }
#pragma unroll
    for (int i = 0; i < width; ++i) {
      value[i] = chance[i] >= probability ? value[i] * scale : 0.0F;
    }
    store<width>(x + at, value);
  }
};

template <class T>
struct NormalWork {
  T* x;
  Philox random;
  std::uint64_t first;
  float deviation;

  /// Computes the values of Philox::normal with device functions.
  template <int width>
  __device__ void run(std::int64_t at) const {
    float value[width];
    for (int i = 0; i < width; ++i) {
      const std::uint64_t index = first + static_cast<std::uint64_t>(at + i);
      const auto words = random.block(index / 2);
      const double u = (static_cast<double>(words[0]) + 1.0) * 0x1.0p-32;
      const double angle =
          static_cast<double>(words[1]) * (0x1.0p-32 * 2.0 * 3.14159265358979323846);
      const double radius = sqrt(-2.0 * log(u));
      const double turn = index % 2 == 0 ? cos(angle) : sin(angle);
      value[i] = deviation * static_cast<float>(radius * turn);
    }
    store<width>(x + at, value);
  }
};

}  // namespace

void dropout(const OpContext& context, const Dropout& args) {
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const bool wide = whole_packs<T>(args.x.columns(), {args.x.data});
    for_elements<vector_width<T>>(
        context, args.x.numel(), wide,
        DropoutWork<T>{args.x.elements<T>(), args.global_token.elements<std::int64_t>(),
                       args.x.columns(), args.first_feature, args.features, args.key.state,
                       args.key.site, args.key.probability});
  });
}

void normal_fill(const OpContext& context, const NormalFill& args) {
  with_fp32_or_bf16(args.x, [&](auto element) {
    using T = decltype(element);
    for_elements<1>(context, args.x.numel(), false,
                    NormalWork<T>{args.x.elements<T>(), Philox(args.seed, args.stream),
                                  static_cast<std::uint64_t>(args.first), args.deviation});
  });
}

}  // namespace trainctl::cuda
