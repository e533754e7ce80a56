// The part of the JSON Schema that makes editors accept upstream spellings.
#pragma once

#include <string>

namespace trainctl {

/// Adds the upstream names to the properties of the root and of each section in the schema, a JSON
/// document, each with a description.
std::string with_upstream_names(const std::string& schema);

}  // namespace trainctl
