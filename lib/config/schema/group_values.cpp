// The entries of optimizer.groups: from the tree and back to text.
#include <utility>

#include "config/schema/list_values.h"

namespace trainctl {
namespace {

constexpr const char* groups_form =
    "a list of groups like [{match: head.weight, lr_mult: 0.1}, {match: \"*norm*\", wd_mult: 1}]";
constexpr const char* match_form = "a pattern or a list of patterns, like \"layers.*.mlp.*\"";

constexpr Field pattern_field = field("match", "").from(1);
constexpr Field factor_field = field("lr_mult", "").from(0);

std::optional<Problem> read_match(const YamlTree& tree, int node, std::vector<std::string>& match) {
  const YamlNode& given = tree.node(node);
  if (given.kind == YamlNode::Kind::scalar) {
    return read_value(given, pattern_field, match.emplace_back());
  }
  if (given.kind != YamlNode::Kind::sequence) return wrong_type(given, match_form);
  for (const int item : given.items) {
    if (auto problem = read_value(tree.node(item), pattern_field, match.emplace_back())) {
      return problem;
    }
  }
  return std::nullopt;
}

std::optional<Problem> read_group_key(const YamlTree& tree, int node, const std::string& key,
                                      OptimizerGroup& group) {
  const YamlNode& given = tree.node(node);
  if (key == "match") return read_match(tree, node, group.match);
  if (key == "lr_mult") return read_value(given, factor_field, group.lr_mult);
  if (key == "wd_mult") return read_value(given, factor_field, group.wd_mult.emplace());
  if (key != "type") {
    return Problem{"unknown-key", "unknown key \"" + shown(key) + "\"",
                   "a group has match, type, lr_mult and wd_mult"};
  }
  int word = 0;
  auto problem = read_word(given, words_of<OptimizerType>, word);
  group.type = static_cast<OptimizerType>(word);
  return problem;
}

std::optional<Problem> read_group(const YamlTree& tree, int node, OptimizerGroup& group) {
  const YamlNode& given = tree.node(node);
  if (given.kind != YamlNode::Kind::map) return wrong_type(given, groups_form);
  for (const YamlEntry& entry : given.entries) {
    if (auto problem = read_group_key(tree, entry.value, entry.key, group)) {
      if (problem->code != "unknown-key") problem->message = entry.key + ": " + problem->message;
      return problem;
    }
  }
  if (group.match.empty()) {
    return Problem{"missing-key", "the entry matches nothing",
                   std::string("add match: ") + match_form};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Problem> read_list(const YamlTree& tree, int node, const Field&,
                                 OptimizerGroups& value) {
  const YamlNode& given = tree.node(node);
  if (given.kind != YamlNode::Kind::sequence) return wrong_type(given, groups_form);
  if (given.items.size() > most_optimizer_groups) {
    return Problem{"out-of-range",
                   "must have at most " + std::to_string(most_optimizer_groups) +
                       " entries, found " + std::to_string(given.items.size()),
                   "give an entry several patterns: match: [a, b]"};
  }
  OptimizerGroups result;
  for (const int item : given.items) {
    if (auto problem = read_group(tree, item, result.list.emplace_back())) {
      problem->message = "entry " + std::to_string(result.list.size()) + ": " + problem->message;
      return problem;
    }
  }
  value = std::move(result);
  return std::nullopt;
}

std::string write_value(const OptimizerGroups& value) {
  std::string text;
  for (const OptimizerGroup& group : value.list) {
    std::string patterns;
    for (const std::string& pattern : group.match) {
      patterns += (patterns.empty() ? "" : ", ") + write_value(pattern);
    }
    std::string one = "{match: [" + patterns + "]";
    if (group.type) one += ", type: " + std::string(word_of(*group.type));
    if (group.lr_mult != 1) one += ", lr_mult: " + write_value(group.lr_mult);
    if (group.wd_mult) one += ", wd_mult: " + write_value(*group.wd_mult);
    text += (text.empty() ? "" : ", ") + one + "}";
  }
  return "[" + text + "]";
}

}  // namespace trainctl
