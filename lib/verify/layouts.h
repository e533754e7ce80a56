// Layouts by short names, such as "tp2sp+pp2+dp2+gpipe", for the command that compares layouts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "verify/switches/layout_switches.h"

namespace trainctl {

struct LayoutChoice {
  LayoutSizes sizes;
  /// One word per switch, "" for the config's own value.
  std::vector<std::string> words = std::vector<std::string>(layout_switches().size());

  std::int64_t ranks() const { return sizes.ranks(); }
  /// The layout as text that parse_layouts reads. Omits sizes of 1; a single rank is "dp1".
  std::string name() const;
  /// The words of the layout, each after the more general word that it implies: "tp" and "tp2" for
  /// tp2, "recompute" and "sliced" for sliced.
  std::vector<std::string> said() const;
};

std::string name_of(const LayoutSizes& sizes);

/// The entries of `words` whose more general word is not in `words` too.
std::vector<std::string> without_implied(const std::vector<std::string>& words);

/// Parses comma-separated layouts. A layout is words joined by "+" in any order: tpN, tpNsp (with
/// sequence parallelism), ppN, dpN, cpN and the words of layout_switches(). If dp is not given, it
/// is `world_size` / other sizes, or 1 if world_size is 0. Throws Error{usage} with a suggestion.
std::vector<LayoutChoice> parse_layouts(const std::string& text, std::int64_t world_size);

/// If routing groups are as large as a micro-batch, fixes their size to that of the configuration's
/// own layout, so that layouts with other micro-batches use the same groups.
Config with_own_groups(Config config);

/// Whether every word of the layout that is worth trying with `file` is so with `config` too.
bool is_worth_trying(const LayoutChoice& choice, const Config& config, const Config& file);

/// Returns `config` in this layout, with one thread per rank. If its number of stages differs from
/// that of the config, the config's settings of its stages are dropped and layers are distributed
/// as evenly as possible.
Config with_layout(const Config& config, const LayoutChoice& choice);

}  // namespace trainctl
