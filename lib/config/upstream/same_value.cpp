#include <optional>
#include <vector>

#include "config/schema/fields.h"
#include "config/schema/read_field.h"
#include "config/upstream/claims.h"

namespace trainctl {
namespace {

constexpr std::size_t longest_text = 60;

/// The visitor that reads both nodes as the field at a path.
struct Comparer {
  const YamlTree& tree;
  std::string_view path;  // what is left of it below this section
  int first = 0;
  int second = 0;
  std::optional<bool> same = std::nullopt;

  template <class Value>
  void operator()(const Value&, const Field& field) {
    if (path != field.key) return;
    Value a{};
    Value b{};
    if (read_field(tree, first, field, a) || read_field(tree, second, field, b)) return;
    same = a == b;
  }
  template <ListedSection Item>
  void operator()(const std::vector<Item>&, const Field&) {}
  template <class Section>
  void section(const Section& value, const Field& field) {
    const std::size_t dot = path.find('.');
    if (dot == std::string_view::npos || path.substr(0, dot) != field.key) return;
    Comparer inner{tree, path.substr(dot + 1), first, second};
    fields(inner, value);
    same = inner.same;
  }
};

/// Aliases may make the text far longer than the file, so it is cut off.
void write_flow(const YamlTree& tree, int index, std::string& text) {
  if (text.size() > longest_text) return;
  const YamlNode& node = tree.node(index);
  const char* separator = "";
  switch (node.kind) {
    case YamlNode::Kind::null: text += "null"; break;
    case YamlNode::Kind::scalar: text += node.scalar.empty() ? "\"\"" : shown(node.scalar); break;
    case YamlNode::Kind::sequence:
      text += "[";
      for (const int item : node.items) {
        if (text.size() > longest_text) break;
        text += separator;
        write_flow(tree, item, text);
        separator = ", ";
      }
      text += "]";
      break;
    case YamlNode::Kind::map:
      text += "{";
      for (const YamlEntry& entry : node.entries) {
        if (text.size() > longest_text) break;
        text += separator + shown(entry.key) + ": ";
        write_flow(tree, entry.value, text);
        separator = ", ";
      }
      text += "}";
      break;
  }
}

}  // namespace

std::string flow_text(const YamlTree& tree, int node) {
  std::string text;
  write_flow(tree, node, text);
  return shown(text);
}

bool same_value(const YamlTree& tree, const std::string& path, int first, int second) {
  Comparer comparer{tree, path, first, second};
  const Config config;
  fields(comparer, config);
  return comparer.same.value_or(flow_text(tree, first) == flow_text(tree, second));
}

}  // namespace trainctl
