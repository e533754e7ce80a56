// Names in unnamed namespaces of files that are compiled together, as pure functions of their text.
#pragma once

#include <map>
#include <string>
#include <vector>

/// One line for each name that two files of one library give to different things in unnamed
/// namespaces: types, values, and functions of the same parameters. `texts`: by path, "lib/..".
/// Whether two files are compiled together changes as files come and go, so each name stands once.
std::vector<std::string> shared_names(const std::map<std::string, std::string>& texts);
