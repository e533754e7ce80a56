// Descriptions of the configuration for readers and editors, generated from the field lists.
#pragma once

#include <optional>
#include <string>

#include "config/read/read.h"
#include "config/upstream/upstream.h"

namespace trainctl {

/// A Markdown page of every key with its type, default, range and meaning.
std::string reference_markdown();
/// A JSON Schema (draft-07) of the YAML file, with which editors complete and check it.
std::string json_schema();

/// A table of an upstream list: upstream key, canonical path, upstream's default, status, note.
std::string upstream_table(std::string_view list);
/// The keys of an upstream list as a JSON list of objects: upstream_key, canonical_path, default,
/// status, note, deprecated.
std::string upstream_json(std::string_view list);
/// All upstream lists as Markdown tables, for the reference page.
std::string upstream_markdown();

// Explains one value of a configuration: the value, its source, the values that it replaced, and
// the description of its key.

/// The explanation of a key, or one line for each key of a section. Also works for a configuration
/// with errors. None if the schema has no such path.
std::optional<std::string> explain_value(const ReadResult& read, const std::string& path);

/// The description of a key, independent of a configuration.
struct KeyNote {
  std::string path;
  std::string meaning;
  std::string type;
  std::string allowed;
  std::string fallback;  // "required", the default value, or a note on the value in effect
  std::string upstream;
  std::string status;
  std::string text;  // all of the above as text; for a section one line per key
};
/// The note of a key or section; none if the schema has no such path.
std::optional<KeyNote> note_of_key(const std::string& path);
/// The canonical path of an upstream key, with or without its section; "" for other keys.
std::string path_of_upstream(const std::string& key);

/// The path that was probably meant by an unknown one: our path for an upstream spelling, the path
/// of a key with this name in another section, or the most similar path; "" if none is similar.
std::string nearest_path(const std::string& path);

}  // namespace trainctl
