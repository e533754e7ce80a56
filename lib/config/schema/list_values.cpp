// Reads values that are lists from the tree and writes them as text.

#include "config/schema/list_values.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/text.h"
#include "config/report/diagnostics.h"
#include "config/schema/model_fields.h"
#include "config/yaml/tree.h"

namespace trainctl {
namespace {

constexpr const char* numbers_form = "a list of whole numbers like [1, 2]";
constexpr const char* splits_form =
    "data_parallel, full_batch or a list for each input like [[2, 1], [2, 1]]";

constexpr const char* layers_form = "a word, or one for each layer like [p2p, a2a*3]";

const Field parts = field("parts", "").from(1).to(1 << 24);

Problem empty_list(const std::string& help) {
  return {"out-of-range", "expected at least one number, found an empty list", help};
}

/// Converts tuples as Python prints them, "(1, 8)" and "((1, 8), (1,))", to flow lists; "" for
/// other text.
std::string tuples_as_lists(const std::string& text) {
  if (!text.starts_with('(')) return "";
  std::string result;
  for (char c : text) {
    if (c == ' ') continue;
    const char bracket = c == '(' ? '[' : c == ')' ? ']' : c;
    if (bracket == ']' && result.ends_with(',')) result.pop_back();
    result += bracket;
  }
  const bool plain = std::all_of(result.begin(), result.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '[' || c == ']' || c == ',' ||
           c == '-';
  });
  return plain ? result : "";
}

/// The node of the list for a text of tuples, with the position of the text; -1 for other text.
int list_node(YamlTree& scratch, const YamlNode& given) {
  YamlTree parsed;
  Diagnostics ignored;
  const std::string text = tuples_as_lists(given.scalar);
  if (text.empty()) return -1;
  scratch.add_text(Place::Origin::file, "");
  const int root = parse_yaml(scratch, text, 0, ignored);
  if (root < 0) return -1;
  for (YamlNode& node : scratch.nodes) node.span = given.span;
  return root;
}

std::optional<Problem> read_splits(const YamlTree& tree, const YamlNode& list,
                                   std::vector<IntList>& splits) {
  if (list.items.empty()) return empty_list(formatted("write {}", splits_form));
  std::vector<IntList> result;
  for (const int item : list.items) {
    const YamlNode& inner = tree.node(item);
    if (inner.kind != YamlNode::Kind::sequence) return wrong_type(inner, splits_form);
    if (auto problem = read_list(tree, item, parts, result.emplace_back())) return problem;
  }
  splits = std::move(result);
  return std::nullopt;
}

/// Adds the layers of an entry: "a2a" for one layer, "a2a*3" for three.
std::optional<Problem> add_layers(YamlNode entry, CpCommTypes& value) {
  const std::size_t star =
      entry.kind == YamlNode::Kind::scalar ? entry.scalar.find('*') : std::string::npos;
  std::int64_t count = 1;
  if (star != std::string::npos) {
    YamlNode times = entry;
    times.quoted = false;
    times.scalar = entry.scalar.substr(star + 1);
    if (auto problem = read_value(times, field("layers", "").from(1).to(10'000), count)) {
      return problem;
    }
    entry.scalar.resize(star);
  }
  int word = 0;
  if (auto problem = read_word(entry, words_of<CpCommType>, word)) return problem;
  value.layers.insert(value.layers.end(), static_cast<std::size_t>(count),
                      static_cast<CpCommType>(word));
  return std::nullopt;
}

Problem not_rising(const IntList& index, std::size_t at) {
  return {"out-of-range",
          formatted("the indices must be in ascending order, found {} after {}", index[at],
                    index[at - 1]),
          "each index is the last gradient of its block"};
}

constexpr const char* levels_form =
    "a list of levels like [{name: nvlink, ranks: 8}, {name: ib, bandwidth: 50e9, latency: 14e-6}]";

constexpr Field level_name = field("name", "").from(1);
constexpr Field level_ranks = field("ranks", "").from(2).to(1 << 24);
constexpr Field level_bandwidth = field("bandwidth", "").above(0);
constexpr Field level_latency = field("latency", "").from(0);
constexpr Field level_oversubscription = field("oversubscription", "").from(1);
constexpr Field level_links = field("links", "").from(1).to(1 << 20);

std::optional<Problem> read_key(const YamlNode& node, const std::string& key, NetworkLevel& level) {
  const auto optional = [&node](const Field& field, auto& value) {
    return read_value(node, field, value.emplace());
  };
  if (key == "name") return read_value(node, level_name, level.name);
  if (key == "ranks") return read_value(node, level_ranks, level.ranks);
  if (key == "bandwidth") return optional(level_bandwidth, level.bandwidth);
  if (key == "latency") return optional(level_latency, level.latency);
  if (key == "oversubscription") {
    return read_value(node, level_oversubscription, level.oversubscription);
  }
  if (key == "links") return optional(level_links, level.links);
  return Problem{"unknown-key", "unknown key \"" + shown(key) + "\"",
                 "a level has name, ranks, bandwidth, latency, oversubscription and links"};
}

std::optional<Problem> read_level(const YamlTree& tree, int node, NetworkLevel& level) {
  const YamlNode& given = tree.node(node);
  if (given.kind != YamlNode::Kind::map) return wrong_type(given, levels_form);
  for (const YamlEntry& entry : given.entries) {
    if (auto problem = read_key(tree.node(entry.value), entry.key, level)) {
      if (problem->code != "unknown-key") problem->message = entry.key + ": " + problem->message;
      return problem;
    }
  }
  if (level.name.empty()) return Problem{"missing-key", "the level has no name", "add name"};
  return std::nullopt;
}

/// Reads a list of numbers, a Python tuple, or a single number.
template <class Number>
std::optional<Problem> read_numbers(const YamlTree& tree, int node, const Field& field,
                                    const char* form, std::vector<Number>& value) {
  const YamlNode& list = tree.node(node);
  if (list.kind == YamlNode::Kind::scalar) {
    YamlTree scratch;
    const int parsed = list_node(scratch, list);
    if (parsed >= 0) return read_numbers(scratch, parsed, field, form, value);
    Number one{};  // a list with one number
    if (auto problem = read_value(list, field, one)) {
      if (problem->code == "wrong-type") problem->message = wrong_type(list, form).message;
      return problem;
    }
    value = {one};
    return std::nullopt;
  }
  if (list.kind != YamlNode::Kind::sequence) return wrong_type(list, form);
  if (list.items.empty()) return empty_list("");
  std::vector<Number> result;
  for (const int item : list.items) {
    if (auto problem = read_value(tree.node(item), field, result.emplace_back())) return problem;
  }
  value = std::move(result);
  return std::nullopt;
}

}  // namespace

std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 IntList& value) {
  return read_numbers(tree, node, field, numbers_form, value);
}

std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 NumberList& value) {
  return read_numbers(tree, node, field, "a list of numbers", value);
}

std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 DatasetSplit& value) {
  const YamlNode& given = tree.node(node);
  DatasetSplit result{.word = "", .splits = {}};
  if (given.kind == YamlNode::Kind::sequence) {
    if (auto problem = read_splits(tree, given, result.splits)) return problem;
  } else if (given.kind == YamlNode::Kind::scalar) {
    YamlTree scratch;
    const int parsed = list_node(scratch, given);
    if (parsed >= 0) return read_list(scratch, parsed, field, value);
    Field words = field;
    words.string_words = "data_parallel|full_batch";
    if (auto problem = read_value(given, words, result.word)) {
      if (problem->code != "bad-word") return problem;
      problem->message = "must be data_parallel, full_batch or a list for each input, found \"" +
                         shown(given.scalar) + "\"";
      return problem;
    }
  } else {
    return wrong_type(given, splits_form);
  }
  value = std::move(result);
  return std::nullopt;
}

std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 FusionValue& value) {
  const YamlNode& given = tree.node(node);
  FusionValue result;
  Field number = field;
  if (given.kind == YamlNode::Kind::sequence) {
    IntList index;
    number.range.least = 0;
    if (auto problem = read_list(tree, node, number, index)) return problem;
    for (std::size_t i = 1; i < index.size(); ++i) {
      if (index[i] <= index[i - 1]) return not_rising(index, i);
    }
    result.index = std::move(index);
  } else if (given.kind == YamlNode::Kind::scalar) {
    number.range.least = 1;
    if (auto problem = read_value(given, number, result.size.emplace())) return problem;
  } else if (given.kind == YamlNode::Kind::map) {
    return wrong_type(given, "null, a number of MB or a list of indices");
  }
  value = std::move(result);
  return std::nullopt;
}

std::optional<Problem> read_list(const YamlTree& tree, int node, const Field&, CpCommTypes& value) {
  const YamlNode& given = tree.node(node);
  CpCommTypes result;
  result.layers.clear();
  if (given.kind == YamlNode::Kind::sequence) {
    if (given.items.empty()) return wrong_type(given, layers_form);
    for (const int item : given.items) {
      if (auto problem = add_layers(tree.node(item), result)) return problem;
    }
  } else if (given.kind == YamlNode::Kind::scalar) {
    std::vector<std::string> parts = split_at(given.scalar, ',');
    if (parts.empty()) parts.emplace_back();
    for (const std::string& part : parts) {
      YamlNode entry = given;
      entry.scalar = without_blanks(part);
      if (auto problem = add_layers(entry, result)) return problem;
    }
  } else {
    return wrong_type(given, layers_form);
  }
  value = std::move(result);
  return std::nullopt;
}

std::optional<Problem> read_list(const YamlTree& tree, int node, const Field&,
                                 NetworkLevels& value) {
  const YamlNode& given = tree.node(node);
  if (given.kind != YamlNode::Kind::sequence) return wrong_type(given, levels_form);
  NetworkLevels result;
  for (const int item : given.items) {
    if (auto problem = read_level(tree, item, result.emplace_back())) {
      problem->message = formatted("level {}: {}", result.size(), problem->message);
      return problem;
    }
  }
  value = std::move(result);
  return std::nullopt;
}

namespace {

/// A flow list of the items, each as write_value gives it.
template <class Items>
std::string flow_list(const Items& items) {
  return "[" + joined(items, ", ", [](const auto& item) { return write_value(item); }) + "]";
}

}  // namespace

std::string write_value(const IntList& value) { return flow_list(value); }
std::string write_value(const NumberList& value) { return flow_list(value); }
std::string write_value(const DatasetSplit& value) {
  return value.word.empty() ? flow_list(value.splits) : value.word;
}

std::string write_value(const FusionValue& value) {
  if (value.index) return write_value(*value.index);
  return value.size ? std::to_string(*value.size) : "null";
}

std::string write_value(const CpCommTypes& value) {
  if (value.layers.size() == 1) return std::string(word_of(value.layers.front()));
  std::string text;
  for (auto first = value.layers.begin(); first != value.layers.end();) {
    const auto next =
        std::find_if(first, value.layers.end(), [&](CpCommType one) { return one != *first; });
    text += (text.empty() ? "" : ", ") + std::string(word_of(*first));
    if (next - first > 1) text += formatted("*{}", next - first);
    first = next;
  }
  return "[" + text + "]";
}

namespace {

/// A visitor that writes the given values of a section as a flow map.
struct FlowWriter {
  std::string text{};

  template <class Value>
  void operator()(const Value& value, const Field& field) {
    add(field, write_value(value));
  }
  template <class Value>
  void operator()(const std::optional<Value>& value, const Field& field) {
    if (value) (*this)(*value, field);
  }
  template <class Section>
  void section(const std::optional<Section>& value, const Field& field) {
    if (!value) return;
    FlowWriter inner;
    fields(inner, *value);
    add(field, "{" + inner.text + "}");
  }

 private:
  void add(const Field& field, const std::string& value) {
    text += formatted("{}{}: {}", text.empty() ? "" : ", ", field.key, value);
  }
};

}  // namespace

std::string write_value(const std::vector<LayerEntry>& value) {
  const auto entry_text = [](const LayerEntry& entry) {
    FlowWriter writer;
    fields(writer, entry);
    return "{" + writer.text + "}";
  };
  return "[" + joined(value, ", ", entry_text) + "]";
}

std::string write_value(const NetworkLevels& value) {
  const auto level_text = [](const NetworkLevel& level) {
    std::string one = "{name: " + write_value(level.name);
    const auto add = [&one](const char* key, const auto& number) {
      one += formatted(", {}: {}", key, write_value(number));
    };
    if (level.ranks > 0) add("ranks", level.ranks);
    if (level.bandwidth) add("bandwidth", *level.bandwidth);
    if (level.latency) add("latency", *level.latency);
    if (level.oversubscription != 1) add("oversubscription", level.oversubscription);
    if (level.links) add("links", *level.links);
    return one + "}";
  };
  return "[" + joined(value, ", ", level_text) + "]";
}

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
                   formatted("add match: {}", match_form)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Problem> read_list(const YamlTree& tree, int node, const Field&,
                                 OptimizerGroups& value) {
  const YamlNode& given = tree.node(node);
  if (given.kind != YamlNode::Kind::sequence) return wrong_type(given, groups_form);
  if (given.items.size() > max_optimizer_groups) {
    return Problem{"out-of-range",
                   formatted("must have at most {} entries, found {}", max_optimizer_groups,
                             given.items.size()),
                   "give an entry several patterns: match: [a, b]"};
  }
  OptimizerGroups result;
  for (const int item : given.items) {
    if (auto problem = read_group(tree, item, result.emplace_back())) {
      problem->message = formatted("entry {}: {}", result.size(), problem->message);
      return problem;
    }
  }
  value = std::move(result);
  return std::nullopt;
}

std::string write_value(const OptimizerGroups& value) {
  const auto group_text = [](const OptimizerGroup& group) {
    std::string one = "{match: " + flow_list(group.match);
    if (group.type) one += formatted(", type: {}", word_of(*group.type));
    if (group.lr_mult != 1) one += ", lr_mult: " + write_value(group.lr_mult);
    if (group.wd_mult) one += ", wd_mult: " + write_value(*group.wd_mult);
    return one + "}";
  };
  return "[" + joined(value, ", ", group_text) + "]";
}

// Muon's coefficients and items: reads them from the tree and writes them as text.
namespace {

constexpr std::size_t max_triples = 100;
constexpr const char* coefficients_form =
    "simple, quintic, polar_express, deepseek_v4 or a list like [[3.4445, -4.775, 2.0315]]";
constexpr const char* items_form = "a list like [gate_up, qkv]";
constexpr Field coefficient = field("coefficients", "");

Problem wrong_list(std::string message) {
  // GCC 12 falsely warns of a read out of bounds if both are added in one expression.
  std::string suggestion = "write ";
  suggestion += coefficients_form;
  return {"out-of-range", std::move(message), std::move(suggestion)};
}

}  // namespace

std::optional<Problem> read_list(const YamlTree& tree, int node, const Field&,
                                 MuonCoefficients& value) {
  const YamlNode& given = tree.node(node);
  MuonCoefficients result;
  if (given.kind == YamlNode::Kind::scalar) {
    int word = 0;
    if (auto problem = read_word(given, words_of<MuonSet>, word)) return problem;
    result.set = static_cast<MuonSet>(word);
    value = std::move(result);
    return std::nullopt;
  }
  if (given.kind != YamlNode::Kind::sequence) return wrong_type(given, coefficients_form);
  if (given.items.empty() || given.items.size() > max_triples) {
    return wrong_list(formatted("expected 1 to 100 steps, found {}", given.items.size()));
  }
  for (const int item : given.items) {
    const YamlNode& step = tree.node(item);
    if (step.kind != YamlNode::Kind::sequence) return wrong_type(step, coefficients_form);
    MuonTriple& triple = result.list.emplace_back();
    if (step.items.size() != triple.size()) {
      return wrong_list(formatted("step {} must have a, b and c, found {} numbers",
                                  result.list.size(), step.items.size()));
    }
    for (std::size_t i = 0; i < triple.size(); ++i) {
      if (auto problem = read_value(tree.node(step.items[i]), coefficient, triple[i])) {
        return problem;
      }
    }
  }
  value = std::move(result);
  return std::nullopt;
}

std::optional<Problem> read_list(const YamlTree& tree, int node, const Field&, MuonItems& value) {
  const YamlNode& given = tree.node(node);
  if (given.kind != YamlNode::Kind::sequence) return wrong_type(given, items_form);
  MuonItems result;
  for (const int item : given.items) {
    int word = 0;
    if (auto problem = read_word(tree.node(item), words_of<MuonItem>, word)) return problem;
    if (has(result, static_cast<MuonItem>(word))) {
      return Problem{"out-of-range", "\"" + shown(tree.node(item).scalar) + "\" is given twice",
                     "each word at most once"};
    }
    result.push_back(static_cast<MuonItem>(word));
  }
  value = std::move(result);
  return std::nullopt;
}

std::string write_value(const MuonCoefficients& value) {
  if (value.list.empty()) return std::string(word_of(value.set));
  return "[" + joined(value.list, ", ", flow_list<MuonTriple>) + "]";
}

std::string write_value(const MuonItems& value) { return flow_list(value); }

}  // namespace trainctl
