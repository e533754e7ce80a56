#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

void rope_plain(const OpContext&, const Rope& args) {
  with_element_type(args.x.dtype, [&]<class T>(T) {
    const std::int64_t size = args.table.columns();
    const std::int64_t pairs = size / 2;
    const std::int64_t step = args.adjacent ? 2 : 1;  // distance between pairs
    const std::int64_t apart = args.adjacent ? 1 : pairs;
    for (std::int64_t row = 0; row < args.x.rows(); ++row) {
      const std::int64_t position = args.position.as<std::int32_t>()[row];
      const float* table = args.table.as<float>() + position * size;
      for (std::int64_t head = 0; head < args.x.columns() / args.head_dim; ++head) {
        T* x = args.x.as<T>() + row * args.x.columns() + head * args.head_dim;
        for (std::int64_t i = 0; i < pairs; ++i) {
          const double cosine = table[i];
          const double sine = args.inverse ? -table[pairs + i] : table[pairs + i];
          T& first = x[step * i];
          T& second = x[step * i + apart];
          const double x1 = to_float(first);
          const double x2 = to_float(second);
          first = from_float<T>(static_cast<float>(x1 * cosine - x2 * sine));
          second = from_float<T>(static_cast<float>(x2 * cosine + x1 * sine));
        }
      }
    }
  });
}

}  // namespace trainctl
