#include <cmath>
#include <cstddef>
#include <cstring>

#include "ops/elements.h"
#include "ops/plain/kernels.h"
#include "ops/rows.h"

namespace trainctl {

namespace {

float row_factor(float weight, bool sigmoid) {
  return sigmoid ? 1 / (1 + std::exp(-weight)) : weight;
}

}  // namespace

void spread_rows_plain(const OpContext&, const MoveRows& args) {
  with_element_type(args.x.dtype, [&]<class T>(T) {
    const std::int64_t features = args.x.shape[1];
    const std::int64_t topk = args.slot.shape[1];
    for (std::int64_t i = 0; i < args.slot.numel(); ++i) {
      const std::int64_t row = args.slot.as<std::int32_t>()[i];
      if (row < 0) continue;
      std::copy_n(args.x.as<T>() + i / topk * features, features, args.y.as<T>() + row * features);
    }
  });
}

void collect_rows_plain(const OpContext&, const MoveRows& args) {
  with_element_type(args.x.dtype, [&]<class T>(T) {
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
  });
}

void scale_rows_plain(const OpContext&, const ScaleRows& args) {
  with_element_type(args.x.dtype, [&]<class T>(T) {
    const std::int64_t features = args.x.shape[1];
    for (std::int64_t i = 0; i < args.x.numel(); ++i) {
      const float weight = row_factor(args.weight.as<float>()[i / features], args.sigmoid);
      args.y.as<T>()[i] = from_float<T>(weight * to_float(args.x.as<T>()[i]));
    }
  });
}

void scale_rows_backward_plain(const OpContext&, const ScaleRows& args) {
  with_element_type(args.x.dtype, [&]<class T>(T) {
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
  });
}

void bias_rows_plain(const OpContext&, const BiasRows& args) {
  with_element_type(args.y.dtype, [&]<class T>(T) {
    const std::int64_t features = args.y.shape[1];
    for (std::int64_t i = 0; i < args.y.numel(); ++i) {
      T& y = args.y.as<T>()[i];
      const float weight = args.weight.as<float>()[i / features];
      y = from_float<T>(to_float(y) + weight * args.bias.as<float>()[i % features]);
    }
  });
}

void bias_rows_backward_plain(const OpContext&, const BiasRows& args) {
  with_element_type(args.dy.dtype, [&]<class T>(T) {
    const std::int64_t features = args.dy.shape[1];
    const std::int64_t rows = args.dy.shape[0];
    const auto dy = [&](std::int64_t row, std::int64_t i) {
      return double{to_float(args.dy.as<T>()[row * features + i])};
    };
    for (std::int64_t i = 0; i < features; ++i) {
      double sum = 0;
      for (std::int64_t row = 0; row < rows; ++row)
        sum += args.weight.as<float>()[row] * dy(row, i);
      args.d_bias.as<float>()[i] += static_cast<float>(sum);
    }
    if (args.d_weight.empty()) return;
    for (std::int64_t row = 0; row < rows; ++row) {
      double dot = 0;
      for (std::int64_t i = 0; i < features; ++i) dot += dy(row, i) * args.bias.as<float>()[i];
      args.d_weight.as<float>()[row] += static_cast<float>(dot);
    }
  });
}

namespace {

/// The row of this shard that holds `index`, or -1.
std::int64_t row_of(std::int32_t index, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t row = index - first_row;
  return row >= 0 && row < rows ? row : -1;
}

}  // namespace

void embedding_forward_plain(const OpContext&, const EmbeddingArgs& args) {
  with_element_type(args.table.dtype, [&]<class T>(T) {
    const std::int64_t hidden = args.y.columns();
    for (std::int64_t t = 0; t < args.y.rows(); ++t) {
      const std::int64_t row =
          row_of(args.indices.as<std::int32_t>()[t], args.first_row, args.table.rows());
      for (std::int64_t i = 0; i < hidden; ++i) {
        float value = row < 0 ? 0.0F : to_float(args.table.as<T>()[row * hidden + i]);
        if (args.accumulate) value += to_float(args.y.as<T>()[t * hidden + i]);
        args.y.as<T>()[t * hidden + i] = from_float<T>(value);
      }
    }
  });
}

void embedding_backward_plain(const OpContext&, const EmbeddingArgs& args) {
  with_element_type(args.dy.dtype, [&]<class T>(T) {
    const std::int64_t hidden = args.dy.columns();
    for (std::int64_t t = 0; t < args.dy.rows(); ++t) {
      const std::int64_t row =
          row_of(args.indices.as<std::int32_t>()[t], args.first_row, args.dtable.rows());
      for (std::int64_t i = 0; i < hidden; ++i) {
        const float dy = to_float(args.dy.as<T>()[t * hidden + i]);
        if (row >= 0) args.dtable.as<float>()[row * hidden + i] += dy;
      }
    }
  });
}

void bias_gradient_plain(const OpContext&, const BiasGradient& args) {
  with_element_type(args.dy.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t features = args.dy.columns();
    for (std::int64_t column = 0; column < features; ++column) {
      double sum = 0;
      for (std::int64_t row = 0; row < args.dy.rows(); ++row) {
        sum += to_float(args.dy.as<T>()[row * features + column]);
      }
      args.db.as<float>()[column] += static_cast<float>(sum);
    }
  });
}

void copy_rows_plain(const OpContext&, const CopyRows& args) {
  const std::int64_t width = size_of(args.x.dtype);
  const auto* x = static_cast<const std::byte*>(args.x.data);
  auto* y = static_cast<std::byte*>(args.y.data);
  for (std::int64_t row = 0; row < args.rows; ++row) {
    std::memcpy(y + row * args.y_step * width, x + row * args.x_step * width,
                static_cast<std::size_t>(args.length * width));
  }
}

void swap_blocks_plain(const OpContext&, const SwapBlocks& args) {
  const auto bytes = static_cast<std::size_t>(args.x.bytes() / (args.rows * args.columns));
  const auto* x = static_cast<const std::byte*>(args.x.data);
  auto* y = static_cast<std::byte*>(args.y.data);
  for (std::int64_t row = 0; row < args.rows; ++row) {
    for (std::int64_t column = 0; column < args.columns; ++column) {
      const auto from = static_cast<std::size_t>(row * args.columns + column);
      const auto to = static_cast<std::size_t>(column * args.rows + row);
      std::memcpy(y + to * bytes, x + from * bytes, bytes);
    }
  }
}

}  // namespace trainctl
