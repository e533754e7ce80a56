// The settings of a layout except its sizes, one word each. A row per switch has its words, their
// effect, and the condition of an effect. A new switch is a new row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config.h"

namespace trainctl {

/// The number of ranks along each axis.
struct LayoutSizes {
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::int64_t dp = 1;
  bool sequence_parallel = false;
  std::int64_t cp = 1;

  /// The number of ranks with the same parameters and different tokens.
  std::int64_t replicas() const { return dp * cp; }
  std::int64_t ranks() const { return tp * pp * dp * cp; }
};

struct LayoutSwitch {
  std::string_view name;   // a layout has at most one word of each switch
  std::string_view form;   // the words, as messages list them
  std::string_view needs;  // without this, its words have no effect; "" if always effective
  /// Applies `word` to `config`; returns false, without a change, if the switch lacks this word.
  bool (*apply)(std::string_view word, Config& config);
  /// The words worth trying with these sizes, "" for the config's own value. Never empty; only ""
  /// if no word of this switch has an effect.
  std::vector<std::string> (*words)(const Config& config, const LayoutSizes& sizes);
};

/// All switches, in the order in which a layout's name lists their words.
std::span<const LayoutSwitch> layout_switches();

/// The decimal number, at least 1 and without leading zeros, after the first `skip` characters.
std::optional<std::int64_t> number_behind(std::string_view word, std::size_t skip);

/// The number n in a word "PREFIXn".
std::optional<std::int64_t> number_in(std::string_view word, std::string_view prefix);

/// The limit of the ranks of a layout, and of a number in a word.
inline constexpr std::int64_t max_layout_ranks = 4096;

}  // namespace trainctl
