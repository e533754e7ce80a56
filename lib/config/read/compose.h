// One document out of several: the file, what it includes, and --set. Variables are replaced and
// upstream spellings rewritten in each before they meet, so that a key given twice is found
// whatever it was called.
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
  int root = -1;         // -1: the file itself is no YAML
  bool missing = false;  // an included file could not be read: keys may seem to be missing
  std::string text;      // of the file itself, normalised
  std::map<std::string, Place> included_by;  // included file -> where that is asked for
  Spellings spellings;
};

inline constexpr std::size_t max_include_depth = 16;

/// Reads `text`, which becomes tree.texts[0], and everything it includes. Adds what is wrong.
Composed compose(YamlTree& tree, std::string_view text, const std::string& name,
                 const Surroundings& around, Diagnostics& diagnostics);

/// Puts the values of --set options in place of the document's, the last one winning; upstream
/// spellings among them are rewritten first. `root` is a map.
Spellings override_values(YamlTree& tree, int root, const std::vector<std::string>& set_options,
                          Diagnostics& diagnostics);

}  // namespace trainctl
