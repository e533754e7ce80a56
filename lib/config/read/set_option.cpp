#include "config/read/set_option.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "config/schema/values.h"
#include "config/yaml/text_marks.h"

namespace trainctl {
namespace {

struct Step {
  std::string key;
  Span span;
};

std::optional<std::vector<Step>> split_path(const std::string& argument, std::size_t end,
                                            TextMarks& marks, int text) {
  std::vector<Step> steps;
  for (std::size_t start = 0; start <= end;) {
    const std::size_t dot = std::min(argument.find('.', start), end);
    if (dot == start) return std::nullopt;
    Span span = marks.span(start, dot - start);
    span.text = text;
    steps.push_back({argument.substr(start, dot - start), span});
    start = dot + 1;
  }
  return steps;
}

/// The value's node, or -1 with an error added.
int value_node(YamlTree& tree, const std::string& argument, std::size_t equals, int text,
               Diagnostics& diagnostics) {
  const std::size_t start = argument.find_first_not_of(' ', equals + 1);
  YamlNode node;
  TextMarks marks(argument);
  if (start == std::string::npos) {
    node.span = marks.span(equals, 1);
    node.span.text = text;
    return tree.add_node(std::move(node));
  }
  const std::string value = argument.substr(start, argument.find_last_not_of(' ') + 1 - start);
  if (std::string("[{\"'").find(value[0]) != std::string::npos) {
    // Blanks in place of the path keep the columns right.
    return parse_yaml(tree, std::string(start, ' ') + value, text, diagnostics);
  }
  node.span = marks.span(start, value.size());
  node.span.text = text;
  if (value != "null" && value != "~") {
    node.kind = YamlNode::Kind::scalar;
    node.scalar = value;
  }
  return tree.add_node(std::move(node));
}

/// The map under `step`, made where there is none, and copied where an alias may share it.
int enter(YamlTree& tree, int map, const Step& step) {
  YamlNode child;
  child.span = step.span;
  if (const YamlEntry* entry = tree.find(map, step.key)) {
    if (tree.node(entry->value).kind == YamlNode::Kind::map) child = tree.node(entry->value);
  }
  child.kind = YamlNode::Kind::map;
  const int made = tree.add_node(std::move(child));
  if (YamlEntry* entry = tree.find(map, step.key)) {
    entry->value = made;
  } else {
    tree.node(map).entries.push_back({step.key, step.span, made});
  }
  return made;
}

}  // namespace

void apply_set_option(YamlTree& tree, int root, const std::string& argument,
                      Diagnostics& diagnostics) {
  const int text = tree.add_text(Place::Origin::set_option, argument);
  const YamlTree::Text source = tree.texts.back();
  if (!check_text(argument, source, diagnostics)) return;
  TextMarks marks(argument);
  const std::size_t equals = argument.find('=');
  const auto steps =
      equals == std::string::npos ? std::nullopt : split_path(argument, equals, marks, text);
  if (!steps) {
    diagnostics.add(
        {Severity::error, "bad-set", "",
         "--set expects PATH=VALUE with a dotted path, found \"" + shown(argument) + "\"",
         "for example --set train.steps=100", tree.place({text, 1, 1, 2})});
    return;
  }
  const int value = value_node(tree, argument, equals, text, diagnostics);
  if (value < 0) return;
  int map = root;
  for (std::size_t i = 0; i + 1 < steps->size(); ++i) map = enter(tree, map, (*steps)[i]);
  const Step& last = steps->back();
  std::erase_if(tree.node(map).entries,
                [&](const YamlEntry& entry) { return entry.key == last.key; });
  tree.node(map).entries.push_back({last.key, last.span, value});
}

}  // namespace trainctl
