#include "config/mindformers/tree_editor.h"

#include <algorithm>
#include <utility>

#include "config/yaml/numbers.h"

namespace trainctl {

using Kind = YamlNode::Kind;

std::string plain_word(const std::string& text) {
  if (text == "True" || text == "TRUE") return "true";
  if (text == "False" || text == "FALSE") return "false";
  return text;
}

const YamlEntry* TreeEditor::find(std::string_view path) const {
  int map = root_;
  while (true) {
    const std::size_t dot = path.find('.');
    if (tree_.node(map).kind != Kind::map) return nullptr;
    const YamlEntry* entry = tree_.find(map, path.substr(0, dot));
    if (entry == nullptr || dot == std::string_view::npos) return entry;
    map = entry->value;
    path.remove_prefix(dot + 1);
  }
}

std::string TreeEditor::text(std::string_view path) const {
  const YamlEntry* entry = find(path);
  return entry == nullptr ? "" : tree_.node(entry->value).scalar;
}

std::optional<std::int64_t> TreeEditor::count(std::string_view path, std::int64_t fallback) const {
  const YamlEntry* entry = find(path);
  if (entry == nullptr) return fallback;
  std::int64_t value = 0;
  const YamlNode& node = tree_.node(entry->value);
  if (node.kind != Kind::scalar || parse_number(node.scalar, value)) return std::nullopt;
  return value > 0 && value <= 1'000'000 ? std::optional<std::int64_t>(value) : std::nullopt;
}

bool TreeEditor::flag(std::string_view path, bool fallback) const {
  return has(path) ? plain_word(text(path)) == "true" : fallback;
}

void TreeEditor::remove(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  const bool at_top = dot == std::string_view::npos;
  const YamlEntry* section = at_top ? nullptr : find(path.substr(0, dot));
  if (section == nullptr && !at_top) return;
  const int map = at_top ? root_ : section->value;
  const std::string_view key = at_top ? path : path.substr(dot + 1);
  std::erase_if(tree_.node(map).entries, [&](const YamlEntry& entry) { return entry.key == key; });
}

void TreeEditor::put(std::string_view path, const Span& key_span, int value) {
  int map = root_;
  for (std::size_t dot; (dot = path.find('.')) != std::string::npos;) {
    const std::string key(path.substr(0, dot));
    path.remove_prefix(dot + 1);
    const YamlEntry* entry = tree_.find(map, key);
    if (entry != nullptr && tree_.node(entry->value).kind == Kind::map) {
      map = entry->value;
      continue;
    }
    YamlNode section;
    section.kind = Kind::map;
    section.span = key_span;
    const int made = tree_.add_node(std::move(section));
    std::erase_if(tree_.node(map).entries, [&](const YamlEntry& e) { return e.key == key; });
    tree_.node(map).entries.push_back({key, {0, 0, 0, 0}, made});
    map = made;
  }
  if (YamlEntry* entry = tree_.find(map, path)) {
    *entry = {std::string(path), key_span, value};
  } else {
    tree_.node(map).entries.push_back({std::string(path), key_span, value});
  }
}

int TreeEditor::scalar(const std::string& text, const Span& span) {
  YamlNode node;
  node.kind = Kind::scalar;
  node.scalar = text;
  node.span = span;
  return tree_.add_node(std::move(node));
}

}  // namespace trainctl
