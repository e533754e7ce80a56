#include "ops/calls.h"

#include <string>

#include "base/error.h"
#include "base/round_up.h"

namespace trainctl {

Pieces cut_into_pieces(std::span<const std::int64_t> elements) {
  const auto count = static_cast<std::int64_t>(elements.size());
  require(count <= most_pieces / 2, ExitCode::unavailable,
          std::to_string(count) + " calls of an operation as one: at most " +
              std::to_string(most_pieces / 2));
  Pieces pieces;
  const auto cut = [&] {
    pieces.first.clear();
    pieces.total = 0;
    for (const std::int64_t length : elements) {
      pieces.first.push_back(pieces.total);
      pieces.total += divide_up(length, pieces.size);
    }
    return pieces.total <= most_pieces;
  };
  while (!cut()) pieces.size *= 2;
  return pieces;
}

}  // namespace trainctl
