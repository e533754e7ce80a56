// A tree written as YAML again: canonical order, block style for maps, comments at their keys.
#pragma once

#include <string>

#include "config/comments.h"
#include "config/yaml_tree.h"

namespace trainctl {

/// The map `root` as a document; its comments are those of tree.texts[0]. Sections and keys come in
/// the schema's order, `include` first; keys that the schema does not have come last.
std::string write_tree(const YamlTree& tree, int root, Comments comments);

/// Whether the schema has a key or a section at this path.
bool is_known_path(const std::string& path);
bool is_known_section(const std::string& path);

}  // namespace trainctl
