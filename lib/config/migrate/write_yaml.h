// Writes a tree as YAML with the comments of the text from which it was read.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/yaml/tree.h"

namespace trainctl {

struct Comments {                                 // comments with their #, without leading blanks
  std::vector<std::string> header;                // the comment block at the start of the file
  std::map<int, std::vector<std::string>> above;  // line of a key -> the comment lines above it
  std::map<int, std::string> behind;  // line of a key -> the comment at the end of that line
  std::vector<std::string> footer;    // comments after the last key
};

/// Collects comments of normalised `text`. `key_lines` are the lines with a key, from 1. A comment
/// above such a line belongs to it; one at the end of another line belongs to the key before.
Comments collect_comments(const std::string& text, const std::set<int>& key_lines);

// Writes YAML in canonical order and block style for maps, with comments at their keys.

/// The map `root` as a document; its comments are those of tree.texts[0]. Sections and keys come in
/// the schema's order, `include` first and unknown keys last.
std::string write_tree(const YamlTree& tree, int root, Comments comments);

}  // namespace trainctl
