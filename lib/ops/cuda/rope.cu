// Rotary position embedding in place: a thread takes neighbouring pairs of one head of one token.
#include "ops/rope.h"

#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"

namespace trainctl::cuda {
namespace {

template <class T>
struct RopeWork {
  T* x;
  const std::int32_t* position;
  const float* table;
  std::int64_t columns, head_dim;
  float sign;  // of the sines

  /// Element `at` counts pairs: those of all heads of a token, token after token.
  template <int width>
  __device__ void run(std::int64_t at) const {
    const std::int64_t pairs = head_dim / 2;
    const std::int64_t token = at / (columns / 2);
    const std::int64_t in_token = at % (columns / 2);
    const std::int64_t pair = in_token % pairs;
    T* first = x + token * columns + in_token / pairs * head_dim + pair;
    const float* row = table + position[token] * head_dim + pair;
    float x1[width];
    float x2[width];
    float cosine[width];
    float sine[width];
    load<width>(first, x1);
    load<width>(first + pairs, x2);
    load<width>(row, cosine);
    load<width>(row + pairs, sine);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float s = sign * sine[i];
      const float left = x1[i];
      x1[i] = left * cosine[i] - x2[i] * s;
      x2[i] = x2[i] * cosine[i] + left * s;
    }
    store<width>(first, x1);
    store<width>(first + pairs, x2);
  }
};

}  // namespace

void rope(const OpContext& context, const Rope& args) {
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const bool wide = whole_packs<T>(args.head_dim / 2, {args.x.data, args.table.data});
    for_elements<vector_width<T>>(
        context, args.x.numel() / 2, wide,
        RopeWork<T>{args.x.elements<T>(), args.position.elements<std::int32_t>(),
                    args.table.elements<float>(), args.x.columns(), args.head_dim,
                    args.inverse ? -1.0F : 1.0F});
  });
}

}  // namespace trainctl::cuda
