// The configuration described for people and for editors, made from the field lists.
#pragma once

#include <string>

namespace trainctl {

/// A Markdown page: every key with its type, default, range and meaning.
std::string reference_markdown();
/// A JSON Schema (draft-07) of the YAML file, for editors that complete and check while typing.
std::string json_schema();

}  // namespace trainctl
