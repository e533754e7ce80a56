// The rules that keep the folders apart and the files small, as a pure function of one source file.
#pragma once

#include <string>
#include <vector>

/// What `text` at `path` (relative to the project, "lib/ops/add.cpp") does against the rules, one
/// line each; empty if nothing.
std::vector<std::string> rule_violations(const std::string& path, const std::string& text);
