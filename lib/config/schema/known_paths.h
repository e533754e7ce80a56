// The dotted paths of the schema in its order, for code that writes YAML or reads other formats.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config.h"

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
/// "hidden_size" of "model.hidden_size".
std::string last_key(std::string_view path);
/// Whether exactly one path of the schema ends in this key.
bool is_unique_key(const std::string& key);

/// The values of `config` whose paths are `wanted`, as YAML by path. Values that are not given and
/// the list of data sources are left out.
std::map<std::string, std::string, std::less<>> written_values(
    const Config& config, const std::function<bool(std::string_view path)>& wanted);

}  // namespace trainctl
