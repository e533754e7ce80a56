#include "config/upstream/short_sections.h"

#include <string>
#include <utility>

#include "config/schema/values.h"

namespace trainctl {
namespace {

constexpr std::pair<std::string_view, std::string_view> short_names[] = {
    {"precision", "compute"}, {"recompute", "select"}, {"output", "dir"}};

/// The same scalar with another text.
int other_text(YamlTree& tree, int scalar, const std::string& text) {
  YamlNode node = tree.node(scalar);
  node.scalar = text;
  node.quoted = false;
  return tree.add_node(std::move(node));
}

void give_recompute(YamlTree& tree, const YamlEntry& entry, int map) {
  const std::string word = lower_case(tree.node(entry.value).scalar);
  const bool off = word == "false" || word == "none";
  const int enable = other_text(tree, entry.value, off ? "false" : "true");
  tree.node(map).entries.push_back({"enable", entry.key_span, enable});
  if (off || word == "true") return;
  // Megatron's word for attention without its stored scores, which nobody stores here.
  const int select = word == "selective" ? other_text(tree, entry.value, "attention") : entry.value;
  tree.node(map).entries.push_back({"select", entry.key_span, select});
}

}  // namespace

std::string_view short_key(std::string_view section) {
  for (const auto& [name, key] : short_names) {
    if (name == section) return key;
  }
  return "";
}

void expand_short_sections(YamlTree& tree, int root) {
  for (std::size_t i = 0; i < tree.node(root).entries.size(); ++i) {
    const YamlEntry entry = tree.node(root).entries[i];
    const YamlNode value = tree.node(entry.value);
    const std::string_view key = short_key(entry.key);
    if (key.empty() || value.kind != YamlNode::Kind::scalar) continue;
    YamlNode section;
    section.kind = YamlNode::Kind::map;
    section.span = value.span;
    const int map = tree.add_node(std::move(section));
    if (entry.key == "recompute") {
      give_recompute(tree, entry, map);
    } else {
      tree.node(map).entries.push_back({std::string(key), entry.key_span, entry.value});
    }
    tree.node(root).entries[i].value = map;
  }
}

}  // namespace trainctl
