// The settings of a layout besides its sizes, a word each: one row per switch, with its words,
// their effect and when they have one. A new switch is a new row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config.h"

namespace trainctl {

/// Ranks along each axis.
struct LayoutSizes {
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::int64_t dp = 1;
  bool sequence_parallel = false;
  std::int64_t cp = 1;

  /// Ranks with the same parameters and other tokens.
  std::int64_t replicas() const { return dp * cp; }
  std::int64_t ranks() const { return tp * pp * dp * cp; }
};

struct LayoutSwitch {
  std::string_view name;   // a layout has at most one word of each switch
  std::string_view form;   // the words, as messages list them
  std::string_view needs;  // without this its words have no effect; "": always
  /// Applies `word` to `config`; returns false, without a change, if the switch lacks this word.
  bool (*apply)(std::string_view word, Config& config);
  /// The words worth trying with these sizes, "" for the config's own value; at least one.
  /// Only "": no word of this switch has an effect.
  std::vector<std::string> (*words)(const Config& config, const LayoutSizes& sizes);
};

/// In the order in which a layout's name lists them.
std::span<const LayoutSwitch> layout_switches();

/// The whole number, at least 1, after the first `skip` letters, in its usual notation.
std::optional<std::int64_t> number_behind(std::string_view word, std::size_t skip);

/// The number n of a word "PREFIXn".
std::optional<std::int64_t> number_in(std::string_view word, std::string_view prefix);

/// The most ranks of a layout, and the largest number in a word.
inline constexpr std::int64_t max_layout_ranks = 4096;

}  // namespace trainctl
