// One value of a configuration explained: what it is, where it came from, what it took the place
// of, and what the schema says about its key.
#pragma once

#include <optional>
#include <string>

#include "config/read/read.h"

namespace trainctl {

/// The explanation of a key, or one line for each key of a section, as text for people. Works with
/// a configuration that has mistakes. Nothing where the schema has no such path.
std::optional<std::string> explain_value(const ReadResult& read, const std::string& path);

/// The path that was probably meant by one the schema does not have: our name for an upstream
/// spelling, a key of that name in another section, or the nearest path; "" if nothing is near.
std::string nearest_path(const std::string& path);

}  // namespace trainctl
