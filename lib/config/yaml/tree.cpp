#include "config/yaml/tree.h"

#include <utility>

namespace trainctl {

Place YamlTree::place(const Span& span) const {
  const Text& text = texts[static_cast<std::size_t>(span.text)];
  const bool has_lines =
      text.origin == Place::Origin::file || text.origin == Place::Origin::set_option;
  if (!has_lines) return {text.origin, text.name, 0, 0, 0};
  Place place{text.origin, text.name, span.line, span.column, span.end_column};
  if (span.note >= 0) place.note = notes[static_cast<std::size_t>(span.note)];
  return place;
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

void YamlTree::fill_in(int map, int defaults, const std::string& path) {
  for (const YamlEntry& wanted : std::vector<YamlEntry>(node(defaults).entries)) {
    const std::string at = (path.empty() ? "" : path + ".") + wanted.key;
    YamlEntry* given = find(map, wanted.key);
    if (given == nullptr) {
      node(map).entries.push_back(wanted);
      continue;
    }
    if (node(wanted.value).kind != YamlNode::Kind::map) {
      note_replaced(at, wanted.value);
      continue;
    }
    if (node(given->value).kind == YamlNode::Kind::null) given->value = wanted.value;
    if (node(given->value).kind != YamlNode::Kind::map) continue;
    // A copy, since an alias may show the same map elsewhere.
    const int copy = add_node(YamlNode(node(given->value)));
    given->value = copy;
    fill_in(copy, wanted.value, at);
  }
}

void YamlTree::note_replaced(const std::string& path, int value) {
  constexpr std::size_t most = 10'000;  // aliases can make a small tree look endless
  if (replaced.size() >= most) return;
  replaced.push_back({path, value});
  for (const YamlEntry& entry : std::vector<YamlEntry>(node(value).entries)) {
    note_replaced(path + "." + entry.key, entry.value);
  }
}

}  // namespace trainctl
