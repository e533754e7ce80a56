// One value of a configuration by its path: whether the schema takes it there, and setting it.
#pragma once

#include <optional>
#include <string>

#include "config/schema/config.h"
#include "config/schema/values.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// Why the schema does not take a node at a path: its kind, word or range, or "unknown-key". A
/// section takes a map or null.
std::optional<Problem> problem_at(const std::string& path, const YamlTree& tree, int node);

/// The same for the text of a scalar without quotes; sets the value where there is no problem.
std::optional<Problem> set_value(Config& config, const std::string& path, const std::string& text);

}  // namespace trainctl
