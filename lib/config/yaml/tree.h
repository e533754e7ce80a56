// A YAML file as a tree with positions, and the replacement of ${NAME} in its values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/at.h"
#include "config/report/diagnostics.h"

namespace trainctl {

/// The environment of a configuration: texts of included files and values of environment variables.
/// Tests and the fuzz target supply their own.
struct Surroundings {
  struct Loaded {
    std::optional<std::string> text;
    std::string why;  // the reason if there is no text, such as "no such file"
  };
  /// Returns the text of an included file; the path is absolute or relative to the working
  /// directory. If empty, includes are refused.
  std::function<Loaded(const std::string& path)> load;
  /// Returns the value of ${NAME}, or none if unset. If empty, the process's environment is used.
  std::function<std::optional<std::string>(const std::string& name)> variable;
};

// A YAML document as a small tree with the position of every key and value. Aliases and merge keys
// are resolved, duplicate keys reported; size and depth are limited for any text. Only
// config/yaml/parse.cpp uses yaml-cpp.

/// A part of a line in one of the tree's texts; lines and columns start at 1.
struct Span {
  int text = 0;  // index into YamlTree::texts
  int line = 0;
  int column = 0;
  int end_column = 0;
  int note = -1;  // index into YamlTree::notes: where the value came from
};

struct YamlEntry {
  std::string key;
  Span key_span;
  int value = 0;  // index into YamlTree::nodes
};

struct YamlNode {
  enum class Kind : std::uint8_t { null, scalar, sequence, map };
  Kind kind = Kind::null;
  bool quoted = false;   // written in quotes or as a block scalar: always a string
  bool expands = false;  // plain or double-quoted: ${NAME} is replaced in it
  int overrides = -1;    // index into YamlTree::override_tags: it replaces an included value
  std::string scalar{};
  Span span{};
  std::vector<YamlEntry> entries{};  // entries of a map in the order of the text; unique keys
  std::vector<int> items{};          // nodes of a sequence
};

struct YamlTree {
  std::vector<YamlNode> nodes;     // an aliased node is stored once and referenced several times
  std::vector<Place> texts;        // each as a whole, without a line
  std::vector<std::string> notes;  // such as "from ${STEPS}"
  // Entries with their whole path as key. `replaced`: values replaced by a merge key, !override,
  // --set or a preset. `override_tags`: values after !override, whose tag is at key_span.
  std::vector<YamlEntry> replaced, override_tags;

  Place place(const Span& span) const;
  int add_text(Place::Origin origin, const std::string& name);
  int add_node(YamlNode node);
  int add_scalar(const std::string& text, const Span& span = {});
  int add_list(std::vector<int> items, const Span& span = {});
  int add_map(std::vector<YamlEntry> entries = {}, const Span& span = {});
  YamlNode& node(int index) { return at(nodes, index); }
  const YamlNode& node(int index) const { return at(nodes, index); }
  /// The entry with this key in the map node, or nullptr.
  const YamlEntry* find(int map, std::string_view key) const;
  YamlEntry* find(int map, std::string_view key);
  /// The entry at a dotted path below the node `map`, or nullptr.
  const YamlEntry* find_path(int map, std::string_view path) const;
  /// The text of the scalar at a dotted path; "" if there is none.
  std::string text_at(int map, std::string_view path) const;
  void remove(int map, std::string_view key);
  /// Adds the entries of map `defaults` that map `map` lacks, also in nested maps. Entries of
  /// `defaults` that `map` has are recorded as replaced; `path` is that of `map`.
  void fill_in(int map, int defaults, const std::string& path);
  /// Records the value at `path`, or each value below it, as replaced.
  void note_replaced(const std::string& path, int value);
};

inline constexpr std::size_t max_yaml_bytes = std::size_t{1} << 20;
inline constexpr std::size_t max_yaml_depth = 100;
inline constexpr std::size_t max_yaml_nodes = 100'000;

/// Removes a byte order mark and converts line ends to "\n".
std::string normalise_text(std::string_view text);

/// Checks a text before parsing: size, UTF-8, control characters, tabs as indentation. Adds at most
/// one error; returns true if there is none.
bool check_text(const std::string& text, const Place& source, Diagnostics& diagnostics);

/// Parses a normalised, checked text, which is tree.texts[text_index], and returns its root node.
/// If it is not valid YAML, adds exactly one error and returns -1. Also reports errors that leave
/// the rest readable (duplicate keys, tags, wrong merge keys) without failing.
int parse_yaml(YamlTree& tree, const std::string& text, int text_index, Diagnostics& diagnostics);

// Replaces ${NAME} and ${NAME:-default} in plain and double-quoted values; $$ is a dollar sign.
// Keys, single-quoted values and block scalars stay unchanged; the value of a variable is not
// scanned for further variables.

/// Replaces characters inside ${...} that YAML would misread by control characters of the same
/// length, so that `{steps: ${STEPS:-10}}` is one value. The text must not contain control
/// characters.
std::string mask_variables(std::string text);
/// Reverses mask_variables().
void unmask_variables(std::string& value);

/// Replaces the variables in the values below `root`; the type of a plain value is found
/// afterwards. Adds "unset-variable" and "bad-variable" errors, and notes on the origin of each
/// value.
void interpolate(YamlTree& tree, int root, const Surroundings& around, Diagnostics& diagnostics);

// Positions in a text: converts the YAML parser's (line, byte column), counted from 0, to spans in
// characters from 1, and finds the ends of written values.

class TextMarks {
 public:
  /// Keeps a reference to `text`.
  explicit TextMarks(const std::string& text);

  /// The byte offset of a position; one outside the text gives the nearest end of the text.
  std::size_t offset(int line, int byte_column) const;
  /// The byte at an offset; '\0' at the end of the text.
  char at(std::size_t offset) const { return offset < text_.size() ? text_[offset] : '\0'; }
  /// The span of `bytes` bytes from `offset`, cut at the end of the line.
  Span span(std::size_t offset, std::size_t bytes);
  /// The offset after any anchor and tag before the value at `offset`.
  std::size_t skip_properties(std::size_t offset) const;
  /// Whether a written null begins at `offset`.
  bool is_null_word(std::size_t offset) const;
  /// The span of the first line of a plain or block scalar with this value.
  Span plain(std::size_t offset, std::string_view value);
  /// The first line of a quoted scalar, and the offset after its closing quote (npos if missing).
  std::pair<Span, std::size_t> quoted(std::size_t offset);
  /// The text of a line; numbers start at 1.
  std::string_view line(int number) const;

 private:
  const std::string& text_;
  std::vector<std::size_t> starts_;  // offset of each line
  // The last position whose column was counted: positions come almost in order, so counting from
  // there is cheap even for long lines.
  std::size_t counted_line_ = 0;
  std::size_t counted_offset_ = 0;
  int counted_column_ = 1;
};

// Explains an error of the YAML parser: the place of its cause instead of the place where the
// parser noticed it, and a remedy.

/// For a line such as "b:2": the length of "b:" including blanks before it; 0 for a correct line.
std::size_t missing_space(std::string_view line);

/// `text` without the blanks at its ends.
std::string_view without_blanks(std::string_view text);

/// A character at the start of a text that looks like a space but is none.
struct OddSpace {
  std::size_t bytes = 0;  // 0 if there is no such character
  std::string_view name;  // such as "a no-break space (U+00A0)"
};
OddSpace odd_space(std::string_view text);

}  // namespace trainctl
