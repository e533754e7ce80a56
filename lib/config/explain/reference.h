// The configuration described for readers and for editors, generated from the field lists.
#pragma once

#include <string>

#include "config/upstream/upstream.h"

namespace trainctl {

/// A Markdown page: every key with its type, default, range and meaning.
std::string reference_markdown();
/// A JSON Schema (draft-07) of the YAML file, for editors that complete and check while typing.
std::string json_schema();

/// The mapping of one upstream list: upstream key, canonical path, upstream's default, status,
/// note.
std::string upstream_table(Upstream list);
/// The same as a JSON list of objects: upstream_key, canonical_path, default, status, note,
/// deprecated.
std::string upstream_json(Upstream list);
/// All lists as Markdown tables, for the reference page.
std::string upstream_markdown();

}  // namespace trainctl
