// Dropout and normal values: each element from its own place in a Philox sequence.
#include "base/philox.h"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/dropout.h"
#include "ops/elements.h"
#include "ops/normal_fill.h"

namespace trainctl::cuda {
namespace {

template <class T>
struct DropoutWork {
  T* x;
  const std::int64_t* token;
  std::int64_t columns, first_feature, features;
  const StepState* state;
  std::int64_t site;
  float probability;

  /// A pack lies in one row: `width` divides the columns, or is 1.
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
      for (int i = 0; i < width; ++i) {  // four elements share a block
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

  /// As Philox::normal, with the device's functions.
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
