// The YAML document as a small tree of our own, with positions of every key and value. Aliases and
// merge keys are resolved, duplicate keys found, size and depth bounded for any text. Only
// config/yaml/parse.cpp uses yaml-cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/report/diagnostics.h"

namespace trainctl {

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
  struct Text {
    Place::Origin origin = Place::Origin::file;
    std::string name;
  };
  /// A value that another one replaced, by a merge key, !override, --set or a preset.
  struct Replaced {
    std::string path;
    int value = 0;
  };
  struct OverrideTag {  // !override in front of a value
    std::string path;
    Span span;
  };
  std::vector<YamlNode> nodes;  // an aliased node is stored once and referenced several times
  std::vector<Text> texts;
  std::vector<std::string> notes;  // "from ${STEPS}"
  std::vector<Replaced> replaced;
  std::vector<OverrideTag> override_tags;

  Place place(const Span& span) const;
  int add_text(Place::Origin origin, const std::string& name);
  int add_node(YamlNode node);
  YamlNode& node(int index) { return nodes[static_cast<std::size_t>(index)]; }
  const YamlNode& node(int index) const { return nodes[static_cast<std::size_t>(index)]; }
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
bool check_text(const std::string& text, const YamlTree::Text& source, Diagnostics& diagnostics);

/// Parses a normalised, checked text that is tree.texts[text_index] and returns its root node, or
/// -1 with exactly one error added if it is not valid YAML. Errors that leave the rest readable
/// (duplicate keys, tags, wrong merge keys) are added too and do not count.
int parse_yaml(YamlTree& tree, const std::string& text, int text_index, Diagnostics& diagnostics);

}  // namespace trainctl
