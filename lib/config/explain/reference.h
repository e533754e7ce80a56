// The configuration described for readers and for editors, generated from the field lists.
#pragma once

#include <optional>
#include <string>

#include "config/read/read.h"
#include "config/upstream/upstream.h"

namespace trainctl {

/// A Markdown page: every key with its type, default, range and meaning.
std::string reference_markdown();
/// A JSON Schema (draft-07) of the YAML file, for editors that complete and check while typing.
std::string json_schema();

/// The mapping of one upstream list: upstream key, canonical path, upstream's default, status,
/// note.
std::string upstream_table(Upstream list);
/// The keys of a list as a JSON list of objects: upstream_key, canonical_path, default, status,
/// note, deprecated.
std::string upstream_json(Upstream list);
/// All lists as Markdown tables, for the reference page.
std::string upstream_markdown();

// Explains one value of a configuration: the value, where it came from, what it replaced, and the
// schema's description of its key.

/// The explanation of a key, or one line for each key of a section, as text. Also works for a
/// configuration with errors. Nothing if the schema has no such path.
std::optional<std::string> explain_value(const ReadResult& read, const std::string& path);

/// Everything that is known of a key without a configuration.
struct KeyNote {
  std::string path;
  std::string meaning;
  std::string type;
  std::string allowed;
  std::string fallback;  // "required", a value, or what holds without the key
  std::string upstream;
  std::string status;
  std::string text;  // the whole; of a section one line for each key
};
/// None if the schema has no such path.
std::optional<KeyNote> note_of_key(const std::string& path);
/// Our path of a key in an upstream spelling, with or without its section; "" for other keys.
std::string path_of_upstream(const std::string& key);

/// The path that was probably meant by an unknown one: our name for an upstream
/// spelling, a key of that name in another section, or the nearest path; "" if nothing is near.
std::string nearest_path(const std::string& path);

}  // namespace trainctl
