// The part of the JSON Schema that lets editors take upstream spellings.
#pragma once

#include <string>

namespace trainctl {

/// The schema, a JSON document, with the names that are taken beside ours added to the properties
/// of the root and of each section, each with a description that says what it is.
std::string with_upstream_names(const std::string& schema);

}  // namespace trainctl
