#include "ops/swap_blocks.h"

#include <cstddef>
#include <cstring>

#include "ops/plain/kernels.h"

namespace trainctl {

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
