// Merges the file, its includes and --set options into one document. In each of them variables are
// replaced and upstream spellings rewritten first, so that a key given twice is found in whatever
// spelling.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/upstream/upstream.h"
#include "config/yaml/surroundings.h"
#include "config/yaml/tree.h"

namespace trainctl {

struct Composed {
  int root = -1;         // -1: the file itself is not valid YAML
  bool missing = false;  // an included file could not be read: keys may seem to be missing
  std::string text;      // of the file itself, normalised
  std::map<std::string, Place> included_by;  // included file -> the place that includes it
  Spellings spellings;
};

inline constexpr std::size_t max_include_depth = 16;

/// Reads `text`, which becomes tree.texts[0], and everything it includes; reports errors.
Composed compose(YamlTree& tree, std::string_view text, const std::string& name,
                 const Surroundings& around, Diagnostics& diagnostics);

/// Replaces the document's values by those of --set options; the last option wins. Upstream
/// spellings in the options are rewritten first. `root` is a map. Returns the options' spellings,
/// with path -> path for an option in our spelling.
Spellings override_values(YamlTree& tree, int root, const std::vector<std::string>& set_options,
                          Diagnostics& diagnostics);

}  // namespace trainctl
