// The dotted paths of the schema in its order, for code that writes YAML or reads other formats.
#pragma once

#include <string>
#include <vector>

namespace trainctl {

struct KnownPath {
  int order = 0;  // place in the schema
  bool is_section = false;
  bool is_bool = false;
  std::vector<std::string> words;  // the values that have a name; empty: any
};

/// nullptr: the schema has no key or section at this path.
const KnownPath* find_known_path(const std::string& path);
/// Every path, sections too, in the order of the schema.
const std::vector<std::string>& all_known_paths();
/// Whether exactly one path of the schema ends in this key.
bool is_unique_key(const std::string& key);

}  // namespace trainctl
