// Layouts by short names, "tp2sp+pp2+dp2+gpipe", for the command that compares them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "verify/switches/layout_switches.h"

namespace trainctl {

struct LayoutChoice {
  LayoutSizes sizes;
  /// One for each switch; "": as the config says.
  std::vector<std::string> words = std::vector<std::string>(layout_switches().size());

  std::int64_t ranks() const { return sizes.ranks(); }
  /// The text that parse_layouts reads back; sizes of 1 are left out, a single rank is "dp1".
  std::string name() const;
  /// The words of the layout, and more general ones that they imply, which come first: "tp" and
  /// "tp2" for tp2, "recompute" for "sliced".
  std::vector<std::string> said() const;
};

std::string name_of(const LayoutSizes& sizes);

/// The words among those of said() that no more general one implies.
std::vector<std::string> without_implied(const std::vector<std::string>& words);

/// Layouts with commas between; a layout is words with "+" between, in any order: tpN, tpNsp (with
/// sequence parallelism), ppN, dpN, cpN and the words of layout_switches(). If dp is not given, it
/// is `world_size` divided by the others, or 1 if that is 0. Throws Error{usage} with a suggestion.
std::vector<LayoutChoice> parse_layouts(const std::string& text, std::int64_t world_size);

/// Where routing groups are as large as a micro-batch, the tokens of one in the configuration's own
/// layout as a number: layouts have other micro-batches, but count over the same groups.
Config with_own_groups(Config config);

/// Whether each word of the layout is as much worth trying with `config` as it is with `file`.
bool is_worth_trying(const LayoutChoice& choice, const Config& config, const Config& file);

/// `config` in this layout, one thread for each rank. If the number of stages differs from the
/// config's own, the config's settings of its stages are dropped, and layers are distributed as
/// evenly as possible.
Config with_layout(const Config& config, const LayoutChoice& choice);

}  // namespace trainctl
