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

/// The environment of a configuration: the texts of included files and the values of environment
/// variables. Tests and the fuzz target supply their own.
struct Surroundings {
  struct Loaded {
    std::optional<std::string> text;
    std::string why;  // if there is no text: the reason, "no such file"
  };
  /// The text of an included file; the path is relative to the working directory, or absolute.
  /// Empty: includes are refused.
  std::function<Loaded(const std::string& path)> load;
  /// The value of ${NAME}, or nothing if it is unset. Empty: the environment of the process.
  std::function<std::optional<std::string>(const std::string& name)> variable;
};

// The YAML document as a small tree of our own, with positions of every key and value. Aliases and
// merge keys are resolved, duplicate keys found, size and depth bounded for any text. Only
// config/yaml/parse.cpp uses yaml-cpp.

/// A stretch of one line of one of the tree's texts; lines and columns start at 1.
struct Span {
  int text = 0;  // index into YamlTree::texts
  int line = 0;
  int column = 0;
  int end_column = 0;
  int note = -1;  // index into YamlTree::notes: more about the origin of the value
};

struct YamlEntry {
  std::string key;
  Span key_span;
  int value = 0;  // index into YamlTree::nodes
};

struct YamlNode {
  enum class Kind : std::uint8_t { null, scalar, sequence, map };
  Kind kind = Kind::null;
  bool quoted = false;   // a scalar in quotes or a block scalar: always a string
  bool expands = false;  // a plain or double-quoted value, in which ${NAME} is replaced
  int overrides = -1;    // index into YamlTree::override_tags: replaces an included value
  std::string scalar;
  Span span;
  std::vector<YamlEntry> entries;  // of a map, in order of the text, keys unique
  std::vector<int> items;          // of a sequence
};

struct YamlTree {
  std::vector<YamlNode> nodes;     // an aliased node is stored once and referenced several times
  std::vector<Place> texts;        // each as a whole, without a line
  std::vector<std::string> notes;  // "from ${STEPS}"
  // Entries whose key is their whole path: values that another one replaced, by a merge key,
  // !override, --set or a preset; and values with !override in front, whose tag is at key_span.
  std::vector<YamlEntry> replaced, override_tags;

  Place place(const Span& span) const;
  int add_text(Place::Origin origin, const std::string& name);
  int add_node(YamlNode node);
  YamlNode& node(int index) { return at(nodes, index); }
  const YamlNode& node(int index) const { return at(nodes, index); }
  /// The entry of a map, or nullptr.
  const YamlEntry* find(int map, std::string_view key) const;
  YamlEntry* find(int map, std::string_view key);
  /// Adds the entries of `defaults` that `map` lacks, including those of nested maps. Both are
  /// maps. Entries that lose are noted as replaced; `path` is the map's.
  void fill_in(int map, int defaults, const std::string& path);
  /// Notes the value at `path`, or each value below it, as replaced.
  void note_replaced(const std::string& path, int value);
};

inline constexpr std::size_t max_yaml_bytes = std::size_t{1} << 20;
inline constexpr std::size_t max_yaml_depth = 100;
inline constexpr std::size_t max_yaml_nodes = 100'000;

/// Removes a byte order mark and converts line ends to "\n".
std::string normalise_text(std::string_view text);

/// Checks a text before it is parsed: its size, invalid UTF-8, control characters, tabs as
/// indentation. Adds at most one error; true if there is none.
bool check_text(const std::string& text, const Place& source, Diagnostics& diagnostics);

/// Parses a normalised, checked text that is tree.texts[text_index] and returns its root node, or
/// -1 with exactly one error added if it is not valid YAML. Errors that leave the rest readable
/// (duplicate keys, tags, wrong merge keys) are added too and do not count.
int parse_yaml(YamlTree& tree, const std::string& text, int text_index, Diagnostics& diagnostics);

// Replaces ${NAME} and ${NAME:-default} in plain and double-quoted values; $$ is a dollar sign.
// Keys, single-quoted values and block scalars stay unchanged; a variable's value is not scanned
// again.

/// Hides what YAML would misread inside each ${...} behind control characters of the same length,
/// so that `{steps: ${STEPS:-10}}` is one value. The text must not contain control characters.
std::string mask_variables(std::string text);
/// Reverses it.
void unmask_variables(std::string& value);

/// Replaces the variables in the values under `root`; plain values get their type afterwards. Adds
/// "unset-variable" and "bad-variable" errors, and notes the origin of each value.
void interpolate(YamlTree& tree, int root, const Surroundings& around, Diagnostics& diagnostics);

// Positions in a text: from (line, byte column), which the YAML parser counts from 0, to spans that
// count characters from 1; and the ends of written values.

class TextMarks {
 public:
  /// Keeps a reference to `text`.
  explicit TextMarks(const std::string& text);

  /// Byte offset of a mark; a mark outside the text is moved to the nearest end.
  std::size_t offset(int line, int byte_column) const;
  /// The byte there, '\0' at the end of the text.
  char at(std::size_t offset) const { return offset < text_.size() ? text_[offset] : '\0'; }
  /// `bytes` bytes from `offset`, limited to the line.
  Span span(std::size_t offset, std::size_t bytes);
  /// The offset after any anchor and tag in front of a value.
  std::size_t skip_properties(std::size_t offset) const;
  /// Whether a null is written out there.
  bool is_null_word(std::size_t offset) const;
  /// The first line of a plain or block scalar with this value.
  Span plain(std::size_t offset, std::string_view value);
  /// The first line of a quoted scalar, and the offset after its closing quote (npos: none).
  std::pair<Span, std::size_t> quoted(std::size_t offset);
  /// The text of a line, counted from 1.
  std::string_view line(int number) const;

 private:
  const std::string& text_;
  std::vector<std::size_t> starts_;  // of each line
  // The position up to which columns were counted last: marks come nearly in order, so continuing
  // from there keeps long lines cheap.
  std::size_t counted_line_ = 0;
  std::size_t counted_offset_ = 0;
  int counted_column_ = 1;
};

// Explains an error of the YAML parser to the author of the file: the place of the cause rather
// than the place where it was noticed, and a remedy.

/// For a line that starts like "b:2": the length of "b:" with the blanks before it; 0 if the line
/// is fine.
std::size_t missing_space(std::string_view line);

/// `text` without the blanks at its ends.
std::string_view without_blanks(std::string_view text);

/// A character that looks like a space and is none, at the start of a text.
struct OddSpace {
  std::size_t bytes = 0;  // 0: there is none
  std::string_view name;  // "a no-break space (U+00A0)"
};
OddSpace odd_space(std::string_view text);

}  // namespace trainctl
