// The rules that keep folders and rooms apart and files small, as pure functions of source text.
#pragma once

#include <map>
#include <string>
#include <vector>

/// The line without // comments and string literals, in which words are prose.
std::string code_of(const std::string& line);

/// The violations of the rules in `text` at `path` (relative to the project,
/// "lib/ops/elementwise.cpp"), one line each.
std::vector<std::string> rule_violations(const std::string& path, const std::string& text);

/// The violations of all files of the project together: files that include each other in a circle.
std::vector<std::string> structure_violations(const std::map<std::string, std::string>& texts);
