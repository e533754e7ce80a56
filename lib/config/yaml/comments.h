// The comments of a YAML text, by the key they belong to, so that a rewritten file can keep them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace trainctl {

struct Comments {                                 // each with its #, without the blanks in front
  std::vector<std::string> header;                // the block that opens the file
  std::map<int, std::vector<std::string>> above;  // line of a key -> the lines in front of it
  std::map<int, std::string> behind;              // line of a key -> what follows on that line
  std::vector<std::string> footer;                // after the last key
};

/// `key_lines` are the lines, from 1, on which keys stand; a comment in front of one belongs to it,
/// and one behind a line without a key to the key before it. `text` is normalised.
Comments collect_comments(const std::string& text, const std::set<int>& key_lines);

}  // namespace trainctl
