#include "config/yaml_tree.h"

#include <utility>

namespace trainctl {

Place YamlTree::place(const Span& span) const {
  const Text& text = texts[static_cast<std::size_t>(span.text)];
  if (text.origin == Place::Origin::preset) return {text.origin, text.name, 0, 0, 0};
  return {text.origin, text.name, span.line, span.column, span.end_column};
}

int YamlTree::add_text(Place::Origin origin, const std::string& name) {
  texts.push_back({origin, name});
  return static_cast<int>(texts.size()) - 1;
}

int YamlTree::add_node(YamlNode node) {
  nodes.push_back(std::move(node));
  return static_cast<int>(nodes.size()) - 1;
}

const YamlEntry* YamlTree::find(int map, std::string_view key) const {
  for (const YamlEntry& entry : node(map).entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

YamlEntry* YamlTree::find(int map, std::string_view key) {
  return const_cast<YamlEntry*>(std::as_const(*this).find(map, key));
}

void YamlTree::fill_in(int map, int defaults) {
  for (const YamlEntry& wanted : std::vector<YamlEntry>(node(defaults).entries)) {
    YamlEntry* given = find(map, wanted.key);
    if (given == nullptr) {
      node(map).entries.push_back(wanted);
      continue;
    }
    if (node(wanted.value).kind != YamlNode::Kind::map) continue;
    if (node(given->value).kind == YamlNode::Kind::null) given->value = wanted.value;
    if (node(given->value).kind != YamlNode::Kind::map) continue;
    // A copy, since an alias may show the same map elsewhere.
    const int copy = add_node(YamlNode(node(given->value)));
    given->value = copy;
    fill_in(copy, wanted.value);
  }
}

}  // namespace trainctl
