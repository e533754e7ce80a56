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
  int order = 0;  // position in the schema
  bool is_section = false;
  bool is_bool = false;
  std::vector<std::string> words;  // allowed words; any value if empty
};

/// The schema's entry at this path; nullptr if there is none.
const KnownPath* find_known_path(const std::string& path);
/// Every path, including sections, in the order of the schema.
const std::vector<std::string>& all_known_paths();
/// The last part of a path: "hidden_size" for "model.hidden_size".
std::string last_key(std::string_view path);
/// Whether exactly one path of the schema ends in this key.
bool is_unique_key(const std::string& key);

/// The given values of `config` with paths for which `wanted` is true, as YAML by path. Omits the
/// list of data sources.
std::map<std::string, std::string, std::less<>> written_values(
    const Config& config, const std::function<bool(std::string_view path)>& wanted);

}  // namespace trainctl
