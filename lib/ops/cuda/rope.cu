// Rotary position embedding in place: a thread rotates consecutive pairs of one head of a token.
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
  std::int64_t heads, head_dim, size;  // size: rotated features per head
  float sign;                          // sign of the sines

  struct Place {
    T* head;            // start of the pair's head
    std::int64_t pair;  // index in the head
    const float* row;   // the pair's cosine; its sine is size / 2 later
  };
  /// `at` numbers the pairs of all heads of a token, token after token.
  __device__ Place place(std::int64_t at) const {
    const std::int64_t pairs = size / 2;
    const std::int64_t token = at / (heads * pairs);
    const std::int64_t in_token = at % (heads * pairs);
    const std::int64_t pair = in_token % pairs;
    return {x + (token * heads + in_token / pairs) * head_dim, pair,
            table + position[token] * size + pair};
  }

  template <int width>
  __device__ void run(std::int64_t at) const {
    const std::int64_t pairs = size / 2;
    const auto [head, pair, row] = place(at);
    T* first = head + pair;
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

/// For pairs of adjacent features.
template <class T>
struct NeighbourWork {
  RopeWork<T> of;

  template <int width>
  __device__ void run(std::int64_t at) const {
    const std::int64_t pairs = of.size / 2;
    const auto [head, pair, row] = of.place(at);
    T* first = head + 2 * pair;
    float cosine[width];
    float sine[width];
    float low[width];
    float high[width];
    load<width>(row, cosine);
    load<width>(row + pairs, sine);
    load<width>(first, low);
    load<width>(first + width, high);
    const auto x = [&](int i) -> float& { return i < width ? low[i] : high[i - width]; };
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float s = of.sign * sine[i];
      const float left = x(2 * i);
      const float right = x(2 * i + 1);
      x(2 * i) = left * cosine[i] - right * s;
      x(2 * i + 1) = right * cosine[i] + left * s;
    }
    store<width>(first, low);
    store<width>(first + width, high);
  }
};

}  // namespace

void rope(const OpContext& context, const Rope& args) {
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t size = args.table.columns();
    const std::int64_t heads = args.x.columns() / args.head_dim;
    // Every head must start at a whole pack, too.
    const bool wide = whole_packs<T>(size / 2, {args.x.data, args.table.data}) &&
                      whole_packs<T>(args.head_dim, {args.x.data});
    const std::int64_t pairs = args.x.rows() * heads * (size / 2);
    const RopeWork<T> work{args.x.elements<T>(),
                           args.position.elements<std::int32_t>(),
                           args.table.elements<float>(),
                           heads,
                           args.head_dim,
                           size,
                           args.inverse ? -1.0F : 1.0F};
    if (args.adjacent) {
      for_elements<vector_width<T>>(context, pairs, wide, NeighbourWork<T>{work});
    } else {
      for_elements<vector_width<T>>(context, pairs, wide, work);
    }
  });
}

}  // namespace trainctl::cuda
