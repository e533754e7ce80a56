#include "ops/copy_rows.h"

#include <cstddef>
#include <cstring>

#include "ops/plain/kernels.h"

namespace trainctl {

void copy_rows_plain(const OpContext&, const CopyRows& args) {
  const std::int64_t width = size_of(args.x.dtype);
  const auto* x = static_cast<const std::byte*>(args.x.data);
  auto* y = static_cast<std::byte*>(args.y.data);
  for (std::int64_t row = 0; row < args.rows; ++row) {
    std::memcpy(y + row * args.y_step * width, x + row * args.x_step * width,
                static_cast<std::size_t>(args.length * width));
  }
}

}  // namespace trainctl
