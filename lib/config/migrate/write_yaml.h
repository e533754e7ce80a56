// A tree written as YAML again, with the comments of the text that it came from.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/yaml/tree.h"

namespace trainctl {

struct Comments {                                 // each with its #, without leading blanks
  std::vector<std::string> header;                // the comment block at the start of the file
  std::map<int, std::vector<std::string>> above;  // line of a key -> the comment lines above it
  std::map<int, std::string> behind;  // line of a key -> the comment at the end of that line
  std::vector<std::string> footer;    // after the last key
};

/// `key_lines` are the lines of keys, from 1. A comment above such a line belongs to it, one at the
/// end of another line to the key before it. `text` is normalised.
Comments collect_comments(const std::string& text, const std::set<int>& key_lines);

// A tree written as YAML again: canonical order, block style for maps, comments at their keys.

/// The map `root` as a document; its comments are those of tree.texts[0]. Sections and keys come in
/// the schema's order, `include` first; keys that the schema does not have come last.
std::string write_tree(const YamlTree& tree, int root, Comments comments);

}  // namespace trainctl
