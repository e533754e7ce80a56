// A tree written as YAML again: canonical order, block style for maps, comments at their keys.
#pragma once

#include <string>

#include "config/yaml/comments.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// The map `root` as a document; its comments are those of tree.texts[0]. Sections and keys come in
/// the schema's order, `include` first; keys that the schema does not have come last.
std::string write_tree(const YamlTree& tree, int root, Comments comments);

}  // namespace trainctl
