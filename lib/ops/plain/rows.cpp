#include "ops/rows.h"

#include <cmath>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

template <class T>
void spread(const SpreadRows& args) {
  const std::int64_t features = args.x.shape[1];
  const std::int64_t topk = args.slot.shape[1];
  for (std::int64_t i = 0; i < args.slot.numel(); ++i) {
    const std::int64_t row = args.slot.as<std::int32_t>()[i];
    if (row < 0) continue;
    std::copy_n(args.x.as<T>() + i / topk * features, features, args.y.as<T>() + row * features);
  }
}

template <class T>
void collect(const CollectRows& args) {
  const std::int64_t features = args.y.shape[1];
  const std::int64_t topk = args.slot.shape[1];
  for (std::int64_t i = 0; i < args.y.numel(); ++i) {
    const std::int32_t* slots = args.slot.as<std::int32_t>() + i / features * topk;
    double sum = 0;
    for (std::int64_t j = 0; j < topk; ++j) {
      if (slots[j] >= 0) sum += to_float(args.x.as<T>()[slots[j] * features + i % features]);
    }
    args.y.as<T>()[i] = from_float<T>(static_cast<float>(sum));
  }
}

float row_factor(float weight, bool sigmoid) {
  return sigmoid ? 1 / (1 + std::exp(-weight)) : weight;
}

template <class T>
void scale(const ScaleRows& args) {
  const std::int64_t features = args.x.shape[1];
  for (std::int64_t i = 0; i < args.x.numel(); ++i) {
    const float weight = row_factor(args.weight.as<float>()[i / features], args.sigmoid);
    args.y.as<T>()[i] = from_float<T>(weight * to_float(args.x.as<T>()[i]));
  }
}

template <class T>
void scale_backward(const ScaleRowsBackward& args) {
  const std::int64_t features = args.x.shape[1];
  for (std::int64_t row = 0; row < args.x.shape[0]; ++row) {
    const float weight = row_factor(args.weight.as<float>()[row], args.sigmoid);
    double dot = 0;
    for (std::int64_t i = row * features; i < (row + 1) * features; ++i) {
      const float dy = to_float(args.dy.as<T>()[i]);
      dot += double{dy} * to_float(args.x.as<T>()[i]);
      args.dx.as<T>()[i] = from_float<T>(weight * dy);
    }
    args.d_weight.as<float>()[row] =
        static_cast<float>(args.sigmoid ? dot * weight * (1 - weight) : dot);
  }
}

template <class T>
void add_bias(const BiasRows& args) {
  const std::int64_t features = args.y.shape[1];
  for (std::int64_t i = 0; i < args.y.numel(); ++i) {
    T& y = args.y.as<T>()[i];
    const float weight = args.weight.as<float>()[i / features];
    y = from_float<T>(to_float(y) + weight * args.bias.as<float>()[i % features]);
  }
}

template <class T>
void bias_backward(const BiasRowsBackward& args) {
  const std::int64_t features = args.dy.shape[1];
  const std::int64_t rows = args.dy.shape[0];
  const auto dy = [&](std::int64_t row, std::int64_t i) {
    return double{to_float(args.dy.as<T>()[row * features + i])};
  };
  for (std::int64_t i = 0; i < features; ++i) {
    double sum = 0;
    for (std::int64_t row = 0; row < rows; ++row) sum += args.weight.as<float>()[row] * dy(row, i);
    args.d_bias.as<float>()[i] += static_cast<float>(sum);
  }
  if (args.d_weight.empty()) return;
  for (std::int64_t row = 0; row < rows; ++row) {
    double dot = 0;
    for (std::int64_t i = 0; i < features; ++i) dot += dy(row, i) * args.bias.as<float>()[i];
    args.d_weight.as<float>()[row] += static_cast<float>(dot);
  }
}

}  // namespace

void spread_rows_plain(const OpContext&, const SpreadRows& args) {
  with_element_type(args.x.dtype, [&](auto element) { spread<decltype(element)>(args); });
}

void collect_rows_plain(const OpContext&, const CollectRows& args) {
  with_element_type(args.x.dtype, [&](auto element) { collect<decltype(element)>(args); });
}

void scale_rows_plain(const OpContext&, const ScaleRows& args) {
  with_element_type(args.x.dtype, [&](auto element) { scale<decltype(element)>(args); });
}

void scale_rows_backward_plain(const OpContext&, const ScaleRowsBackward& args) {
  with_element_type(args.x.dtype, [&](auto element) { scale_backward<decltype(element)>(args); });
}

void bias_rows_plain(const OpContext&, const BiasRows& args) {
  with_element_type(args.y.dtype, [&](auto element) { add_bias<decltype(element)>(args); });
}

void bias_rows_backward_plain(const OpContext&, const BiasRowsBackward& args) {
  with_element_type(args.dy.dtype, [&](auto element) { bias_backward<decltype(element)>(args); });
}

}  // namespace trainctl
