#include <cmath>

#include "base/philox.h"
#include "ops/elements.h"
#include "ops/elementwise.h"
#include "ops/plain/kernels.h"

namespace trainctl {

void add_plain(const OpContext&, const Add& args) {
  with_element_type(args.y.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::int64_t i = 0; i < args.y.numel(); ++i) {
      const double a = args.a.empty() ? 0.0F : to_float(args.a.as<T>()[i]);
      const double b =
          args.b.dtype == DType::f32 ? args.b.as<float>()[i] : to_float(args.b.as<T>()[i]);
      args.y.as<T>()[i] = from_float<T>(static_cast<float>(a + args.factor * b));
    }
  });
}

void cast_plain(const OpContext&, const Cast& args) {
  with_element_type(args.x.dtype, [&](auto from) {
    with_element_type(args.y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      for (std::int64_t i = 0; i < args.x.numel(); ++i) {
        args.y.as<To>()[i] = from_float<To>(to_float(args.x.as<From>()[i]));
      }
    });
  });
}

void scaled_sum_plain(const OpContext&, const ScaledSum& args) {
  const float alpha = args.squares == nullptr
                          ? args.alpha
                          : divided(args.alpha, std::sqrt(*args.squares), args.least);
  const std::int64_t count = args.x.numel();
  const Tensor x = args.x.view({count});
  const Tensor y = args.y.empty() ? args.y : args.y.view({count});
  const Tensor z = args.z.view({count});
  for (std::int64_t i = 0; i < count; ++i) {
    const auto scaled = alpha * static_cast<float>(element_of(x, i));
    const float added = y.empty() ? 0.0F : args.beta * static_cast<float>(element_of(y, i));
    with_fp32_or_bf16(z, [&](auto element) {
      using T = decltype(element);
      z.as<T>()[i] = from_float<T>(scaled + added);
    });
  }
}

void normal_fill_plain(const OpContext&, const NormalFill& args) {
  const Philox random(args.seed, args.stream);
  with_fp32_or_bf16(args.x, [&](auto element) {
    using T = decltype(element);
    for (std::int64_t i = 0; i < args.x.numel(); ++i) {
      const float value = random.normal(static_cast<std::uint64_t>(args.first + i));
      args.x.as<T>()[i] = from_float<T>(args.deviation * value);
    }
  });
}

void dropout_plain(const OpContext&, const Dropout& args) {
  with_element_type(args.x.dtype, [&]<class T>(T) {
    const StepState& state = *args.key.state;
    const Philox random(state.seed, dropout_stream(state.step, args.key.site));
    const float scale = 1.0F / (1.0F - args.key.probability);
    for (std::int64_t row = 0; row < args.x.rows(); ++row) {
      const std::int64_t token = args.global_token.as<std::int64_t>()[row];
      for (std::int64_t column = 0; column < args.x.columns(); ++column) {
        T& x = args.x.as<T>()[row * args.x.columns() + column];
        const std::int64_t index = token * args.features + args.first_feature + column;
        const bool keep = random.uniform(static_cast<std::uint64_t>(index)) >= args.key.probability;
        x = from_float<T>(keep ? to_float(x) * scale : 0.0F);
      }
    }
  });
}

}  // namespace trainctl
