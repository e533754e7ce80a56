// Which dotted paths the schema has, in its order: for what writes YAML or reads foreign files.
#pragma once

#include <string>

namespace trainctl {

struct KnownPath {
  int order = 0;  // place in the schema
  bool is_section = false;
  bool is_bool = false;
};

/// nullptr: the schema has no key or section at this path.
const KnownPath* find_known_path(const std::string& path);

}  // namespace trainctl
