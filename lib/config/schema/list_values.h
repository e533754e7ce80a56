// Reads values that are lists, or either a word, a number or a list, from the tree, and writes them
// as flow YAML.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "config/schema/config.h"
#include "config/schema/field.h"
#include "config/schema/parallel_config.h"
#include "config/schema/values.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// The list types of this header.
template <class Value>
concept ListValue = std::same_as<Value, IntList> || std::same_as<Value, NumberList> ||
    std::same_as<Value, DatasetSplit> || std::same_as<Value, FusionValue> ||
    std::same_as<Value, CpCommTypes> || std::same_as<Value, NetworkLevels> ||
    std::same_as<Value, OptimizerGroups> || std::same_as<Value, MuonCoefficients> ||
    std::same_as<Value, MuonItems>;

/// Stores the value and returns none, or leaves it unchanged and returns the problem. The field's
/// range applies to each number of a list; a list must not be empty.
std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 IntList& value);
std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 NumberList& value);
/// dataset_strategy: the word data_parallel or full_batch, or a list of numbers per input, also as
/// Python tuples: ((1, 8), (1, 8)).
std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 DatasetSplit& value);
/// Null, a size of at least 1, or ascending indices from 0.
std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 FusionValue& value);
/// A word, or one word per layer as a list or a text: [p2p, a2a*3], "p2p, a2a*3".
std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 CpCommTypes& value);
/// A list of maps {name, ranks, bandwidth, latency, oversubscription, links}.
std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 NetworkLevels& value);
/// A list of maps {match, type, lr_mult, wd_mult}; match is a pattern or a list of them.
std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 OptimizerGroups& value);
/// A word of MuonSet, or a list of [a, b, c].
std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 MuonCoefficients& value);
/// A list of words of MuonItem, each once.
std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 MuonItems& value);

/// Flow YAML: "[1, 2]", "[[1, 8], [1, 8]]", "full_batch", "null", "p2p", "[p2p, a2a*3]".
std::string write_value(const IntList& value);
std::string write_value(const NumberList& value);
std::string write_value(const DatasetSplit& value);
std::string write_value(const FusionValue& value);
std::string write_value(const CpCommTypes& value);
/// Such as "[{name: local, count: 5}, {name: global, use_rope: false}]".
std::string write_value(const std::vector<LayerEntry>& value);
/// Such as "[{name: ib, bandwidth: 5.0e+10}]".
std::string write_value(const NetworkLevels& value);
/// Such as "[{match: [embedding.*], lr_mult: 0.1}]".
std::string write_value(const OptimizerGroups& value);
/// Such as "quintic" or "[[3.4445, -4.775, 2.0315]]"; "[gate_up, qkv]".
std::string write_value(const MuonCoefficients& value);
std::string write_value(const MuonItems& value);

// Reads one value of any type in the schema from the tree, by the rule of its field.

/// Reads the word of a choice, or any other value except a list.
template <class Value>
std::optional<Problem> read_scalar(const YamlNode& node, const Field& field, Value& value) {
  if constexpr (IsChoice<Value>) {
    int number = static_cast<int>(value);
    auto problem = read_word(node, words_of<Value>, number);
    value = static_cast<Value>(number);
    return problem;
  } else {
    return read_value(node, field, value);
  }
}

/// Stores the value and returns none, or leaves it unchanged and returns the problem.
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
