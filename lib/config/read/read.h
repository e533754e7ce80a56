// From YAML text and --set options to a Config, with every mistake of the file in one Diagnostics.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "config/yaml/surroundings.h"

namespace trainctl {

/// A value that did not come through: a preset, an included file or the file had it, and something
/// with a better claim gave another.
struct ReplacedValue {
  std::string text;  // as it was written; "a map", "a list" or "null" for other kinds
  Place place;
};

struct ReadResult {
  Config config;
  /// There was a map of sections: each value of `config` is the file's or carries an error at its
  /// path. False after a syntax error or where the document is no map: then `config` means nothing.
  bool complete = false;
  SourceMap sources;
  std::map<std::string, std::vector<ReplacedValue>> replaced;  // by path, the last in front
  std::map<std::string, Place> included_by;  // included file -> where that is asked for
  Diagnostics diagnostics;
};

/// Reads a file. A file that is missing, unreadable or a folder throws Error{missing_input}.
ReadResult read_config(const std::filesystem::path& file,
                       const std::vector<std::string>& set_options);
/// The same from text; `name` stands for the file in messages. Without surroundings nothing can be
/// included.
ReadResult read_config_text(std::string_view text, const std::string& name,
                            const std::vector<std::string>& set_options,
                            const Surroundings& around = {});

/// The text of a file, not much more than max_yaml_bytes of it, or why there is none.
Surroundings::Loaded load_text(const std::string& path);

/// Every value, defaults and preset values included, as YAML that reads back to the same Config;
/// with `sources`, each line ends in a comment that says where the value came from.
std::string dump_config(const Config& config, const SourceMap* sources);

}  // namespace trainctl
