// From YAML text and --set options to a Config, with every error of the file in one Diagnostics.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "config/schema/values.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// A value that was replaced: it came from a preset, an included file or the file, and something of
/// higher precedence gave another.
struct ReplacedValue {
  std::string text;  // as it was written; "a map", "a list" or "null" for other kinds
  Place place;
};

struct ReadResult {
  Config config;
  /// The configuration with its lengths as they were given, before a plan turned all lengths into
  /// steps. A resumed run starts from it. Empty until a plan was asked for.
  std::optional<Config> given{};
  /// The document is a map of sections: each value of `config` is the file's, or an error is
  /// reported at its path. False after a syntax error or if the document is not a map; `config` is
  /// then meaningless.
  bool complete = false;
  SourceMap sources;
  std::map<std::string, std::vector<ReplacedValue>> replaced;  // by path, the last first
  std::map<std::string, Place> included_by;  // included file -> the place that includes it
  Diagnostics diagnostics;
};

/// Reads a file. Throws Error{missing_input} if it is missing, unreadable or a directory.
ReadResult read_config(const std::filesystem::path& file,
                       const std::vector<std::string>& set_options);
/// Reads a text; messages use `name` as the name of the file. Without `around`, the text can
/// include nothing and use no variables.
ReadResult read_config_text(std::string_view text, const std::string& name,
                            const std::vector<std::string>& set_options,
                            const Surroundings& around = {});

/// The configuration with its lengths as they were given.
Config config_as_given(const ReadResult& read);

/// The text of a file (slightly more than max_yaml_bytes at most), or why it cannot be read.
Surroundings::Loaded load_text(const std::string& path);

/// Every value, defaults and preset values included, as YAML that reads back to the same Config;
/// with `sources`, a comment on each line says where the value came from.
std::string dump_config(const Config& config, const SourceMap* sources);

// One value of a configuration by its path: whether the schema takes it there, and setting it.

/// Why the schema does not take a node at a path: its kind, word or range, or "unknown-key". A
/// section takes a map or null.
std::optional<Problem> problem_at(const std::string& path, const YamlTree& tree, int node);

/// Sets the value at `path` from the text of a scalar without quotes, or returns the problem and
/// leaves the value unchanged.
std::optional<Problem> set_value(Config& config, const std::string& path, const std::string& text);

}  // namespace trainctl
