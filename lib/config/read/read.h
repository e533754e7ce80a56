// Reads YAML text and --set options to a Config, with every error of the file in one Diagnostics.
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

/// A value from a preset, an included file or the file that a value of higher precedence replaced.
struct ReplacedValue {
  std::string text;  // as written; "a map", "a list" or "null" for values that are not text
  Place place;
};

struct ReadResult {
  Config config;
  /// The configuration before a plan turned all lengths into steps. A resumed run starts from it.
  /// Empty until a plan was requested.
  std::optional<Config> given{};
  /// True if the document is a map of sections: each value of `config` is then the file's, or an
  /// error is reported at its path. False after a syntax error or for other documents; `config` is
  /// then meaningless.
  bool complete = false;
  SourceMap sources;
  std::map<std::string, std::vector<ReplacedValue>> replaced;  // by path, last replaced first
  std::map<std::string, Place> included_by;  // included file -> place of its include
  Diagnostics diagnostics;
};

/// Reads a file. Throws Error{missing_input} if it is missing, unreadable or a directory.
ReadResult read_config(const std::filesystem::path& file,
                       const std::vector<std::string>& set_options);
/// Reads a text; messages use `name` as the name of the file. Without `around`, the text cannot
/// include files or use variables.
ReadResult read_config_text(std::string_view text, const std::string& name,
                            const std::vector<std::string>& set_options,
                            const Surroundings& around = {});

/// The configuration with lengths in steps, tokens or epochs as given.
Config config_as_given(const ReadResult& read);

/// The text of a file (cut slightly above max_yaml_bytes), or the reason why it cannot be read.
Surroundings::Loaded load_text(const std::string& path);

/// Every value, including defaults and values of presets, as YAML that reads back to the same
/// Config. With `sources`, a comment on each line names the source of the value.
std::string dump_config(const Config& config, const SourceMap* sources);

// Access to one value of a configuration by its path: whether a node fits there, and a setter.

/// Why a node does not fit a path of the schema: its kind, word or range, or "unknown-key"; none if
/// it fits. A section accepts a map or null.
std::optional<Problem> problem_at(const std::string& path, const YamlTree& tree, int node);

/// Sets the value at `path` from an unquoted scalar. If that fails, returns the problem and leaves
/// the value unchanged.
std::optional<Problem> set_value(Config& config, const std::string& path, const std::string& text);

}  // namespace trainctl
