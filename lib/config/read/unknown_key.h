// What was probably meant by a key that the schema does not have, or by a value that a key does not
// take.
#pragma once

#include <string>
#include <vector>

#include "config/schema/values.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// An unknown key of a section ("" for the top level) that has the `known` ones.
struct UnknownKey {
  const YamlTree& tree;
  const std::string& section;
  const YamlEntry& entry;
  const std::vector<std::string>& known;
};

struct UnknownKeyHelp {
  std::string text;                // "did you mean hidden_size?", "write train.steps: 10", or ""
  std::vector<std::string> paths;  // keys of ours that it stands for: they are not missing
};

/// Names a key only where that takes the kind of value that was written.
UnknownKeyHelp help_for(const UnknownKey& unknown);
/// What to write for a section that has a value instead of keys, such as optimizer: adamw.
std::string help_for_section(const std::string& section, const YamlNode& value);

/// What to write instead of a value that the key at `path` does not take: `help`, which may be "",
/// or what people mean by that value.
std::string help_for_value(const YamlTree& tree, const std::string& path, int node,
                           std::string help);

}  // namespace trainctl
