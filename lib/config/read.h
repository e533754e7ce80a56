// From YAML text and --set options to a Config, with every mistake of the file in one Diagnostics.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/diagnostics.h"

namespace trainctl {

struct ReadResult {
  Config config;
  /// There was a map of sections: each value of `config` is the file's or carries an error at its
  /// path. False after a syntax error or where the document is no map: then `config` means nothing.
  bool complete = false;
  SourceMap sources;
  Diagnostics diagnostics;
};

/// Reads a file. A file that is missing, unreadable or a folder throws Error{missing_input}.
ReadResult read_config(const std::filesystem::path& file,
                       const std::vector<std::string>& set_options);
/// The same from text; `name` stands for the file in messages.
ReadResult read_config_text(std::string_view text, const std::string& name,
                            const std::vector<std::string>& set_options);

/// Every value, defaults and preset values included, as YAML that reads back to the same Config;
/// with `sources`, each line ends in a comment that says where the value came from.
std::string dump_config(const Config& config, const SourceMap* sources);

/// Names of the presets, sorted.
std::vector<std::string> preset_names();

}  // namespace trainctl
