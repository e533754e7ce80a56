// Other projects' files as keys with values: command lines and shell scripts, Python assignments,
// TOML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/yaml/tree.h"

namespace trainctl {

/// The most values that are read of one file.
inline constexpr std::size_t most_foreign_values = 5000;

/// Without blanks and carriage returns at its ends.
std::string trimmed(std::string_view text);
bool is_name_character(char c);

/// One key of such a file with its words; none for a flag.
struct ForeignValue {
  std::string key;  // "--num-layers", "-b", "n_layer", "training.steps"
  std::vector<std::string> words;
  bool is_list = false;
  bool is_code = false;  // an expression, not a literal
  Span span;             // of the key
};

/// Options with what follows them, of a command line or a shell script: comments, line ends behind
/// a backslash, arrays, quotes, and variables that the script sets. `$NAME` that it does not set
/// becomes `${NAME}`.
std::vector<ForeignValue> read_arguments(const std::string& text);
/// `name = literal` on lines of their own; products of numbers are literals. Options such as
/// --n_layer=4 are read too.
std::vector<ForeignValue> read_assignments(const std::string& text);
/// Tables and plain values; a key has its table's name before it.
std::vector<ForeignValue> read_toml(const std::string& text);

}  // namespace trainctl
