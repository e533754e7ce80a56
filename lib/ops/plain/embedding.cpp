#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

/// The row of a shard that holds `index`, or -1.
std::int64_t row_of(std::int32_t index, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t row = index - first_row;
  return row >= 0 && row < rows ? row : -1;
}

template <class T>
void forward(const EmbeddingForward& args) {
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
}

template <class T>
void backward(const EmbeddingBackward& args) {
  const std::int64_t hidden = args.dy.columns();
  for (std::int64_t t = 0; t < args.dy.rows(); ++t) {
    const std::int64_t row =
        row_of(args.indices.as<std::int32_t>()[t], args.first_row, args.dtable.rows());
    for (std::int64_t i = 0; i < hidden; ++i) {
      const float dy = to_float(args.dy.as<T>()[t * hidden + i]);
      if (row >= 0) args.dtable.as<float>()[row * hidden + i] += dy;
    }
  }
}

}  // namespace

void embedding_forward_plain(const OpContext&, const EmbeddingForward& args) {
  with_element_type(args.table.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void embedding_backward_plain(const OpContext&, const EmbeddingBackward& args) {
  with_element_type(args.dy.dtype, [&](auto element) { backward<decltype(element)>(args); });
}

}  // namespace trainctl
