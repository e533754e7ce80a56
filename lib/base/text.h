// Formats values by a pattern; takes texts apart, and joins them.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainctl {

/// `formatted("{} ranks in groups of {}", 8, 2)` is "8 ranks in groups of 2". The pattern is
/// checked at compile time. A double is printed with the digits that it needs; `{:.1f}` and the
/// like set their number.
template <class... Values>
std::string formatted(fmt::format_string<Values...> pattern, Values&&... values) {
  return fmt::format(pattern, std::forward<Values>(values)...);
}

/// Removes and returns the front of `text` up to `end`, all of it if it has no `end`; also removes
/// `end`.
std::string_view take_until(std::string_view& text, std::string_view end);

/// The rows of a table that is part of the program (lib/embed.cmake): its lines, without those that
/// begin with "#" and those of blanks only. A line that begins with a blank continues the row
/// before it, if there is one, after "|" directly, else after one blank.
std::vector<std::string> table_rows(std::string_view table);

/// Texts as "a, b and c", where `last` is " and ".
std::string listed(const std::vector<std::string>& texts, std::string_view last);

/// The items with `between` between them, also around empty items; `text_of` gives the text of an
/// item, if it is not one.
template <class Items, class TextOf = std::identity>
std::string joined(const Items& items, std::string_view between, const TextOf& text_of = {}) {
  std::string text;
  bool is_first = true;
  for (const auto& item : items) {
    if (!std::exchange(is_first, false)) text += between;
    text += std::invoke(text_of, item);
  }
  return text;
}

}  // namespace trainctl
