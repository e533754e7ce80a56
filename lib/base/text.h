// Formats values by a pattern.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

namespace trainctl {

/// `formatted("{} ranks in groups of {}", 8, 2)` is "8 ranks in groups of 2". The pattern is
/// checked at compile time. A double is printed with the digits that it needs; `{:.1f}` and the
/// like set their number.
template <class... Values>
std::string formatted(fmt::format_string<Values...> pattern, Values&&... values) {
  return fmt::format(pattern, std::forward<Values>(values)...);
}

}  // namespace trainctl
