// Which keys of its document a query sees, besides those after it, which it never does.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainctl {

/// The last `window` keys up to its own, or those of its chunk of `chunk` tokens of the document.
/// 0: all of them. At most one of the two is given.
struct KeyLimits {
  std::int64_t window = 0, chunk = 0;

  constexpr bool any() const { return window > 0 || chunk > 0; }
  /// The first position that a query at `position` sees, of a document that begins at `document`.
  /// It does not fall from a query to a later one.
  constexpr std::int64_t first_seen(std::int64_t position, std::int64_t document) const {
    const std::int64_t inside = position - document;
    if (window > 0 && inside >= window) return position - window + 1;
    return chunk > 0 ? document + inside / chunk * chunk : document;
  }
  /// Keys that the queries of a document of `length` tokens see, together.
  double pairs(std::int64_t length) const {
    const auto triangle = [](double tokens) { return tokens * (tokens + 1) / 2; };
    const double all = static_cast<double>(length);
    if (window > 0) {
      const double far = static_cast<double>(std::max<std::int64_t>(0, length - window));
      return triangle(all) - triangle(far);
    }
    if (chunk == 0) return triangle(all);
    return static_cast<double>(length / chunk) * triangle(static_cast<double>(chunk)) +
           triangle(static_cast<double>(length % chunk));
  }
  bool operator==(const KeyLimits&) const = default;
};

}  // namespace trainctl
