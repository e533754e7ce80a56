// Reads one value of any type of the schema from the tree, by its field's rule.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "config/schema/list_values.h"
#include "config/schema/values.h"

namespace trainctl {

/// A word of a choice, or any other value but a list.
template <class Value>
std::optional<Problem> read_scalar(const YamlNode& node, const Field& field, Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    int number = static_cast<int>(value);
    auto problem = read_word(node, words_of<Value>, number);
    value = static_cast<Value>(number);
    return problem;
  } else {
    return read_value(node, field, value);
  }
}

/// Stores the value and returns nothing, or leaves it unchanged and returns the problem.
template <class Value>
std::optional<Problem> read_field(const YamlTree& tree, int node, const Field& field,
                                  Value& value) {
  if constexpr (ListValue<Value>) {
    return read_list(tree, node, field, value);
  } else {
    auto problem = read_scalar(tree.node(node), field, value);
    const YamlNode& given = tree.node(node);
    Value inner{};
    if (problem && given.kind == YamlNode::Kind::sequence && given.items.size() == 1 &&
        !read_field(tree, given.items.front(), field, inner)) {
      problem->help = "write " + shown(tree.node(given.items.front()).scalar);
    }
    return problem;
  }
}

template <class Value>
std::optional<Problem> read_field(const YamlTree& tree, int node, const Field& field,
                                  std::optional<Value>& value) {
  Value given{};
  auto problem = read_field(tree, node, field, given);
  if (!problem) value = std::move(given);
  return problem;
}

}  // namespace trainctl
