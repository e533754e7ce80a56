// Muon's coefficients and items: from the tree and back to text.
#include <algorithm>
#include <utility>

#include "config/schema/list_values.h"

namespace trainctl {
namespace {

constexpr std::size_t most_triples = 100;
constexpr const char* coefficients_form =
    "simple, quintic, polar_express, deepseek_v4 or a list like [[3.4445, -4.775, 2.0315]]";
constexpr const char* items_form = "a list like [gate_up, qkv]";
constexpr Field coefficient = field("coefficients", "");

Problem wrong_list(std::string message) {
  // GCC 12 warns falsely of a read out of bounds where the two are added in one expression.
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
  if (given.items.empty() || given.items.size() > most_triples) {
    return wrong_list("expected 1 to 100 steps, found " + std::to_string(given.items.size()));
  }
  for (const int item : given.items) {
    const YamlNode& step = tree.node(item);
    if (step.kind != YamlNode::Kind::sequence) return wrong_type(step, coefficients_form);
    MuonTriple& triple = result.list.emplace_back();
    if (step.items.size() != triple.size()) {
      return wrong_list("step " + std::to_string(result.list.size()) +
                        " must have a, b and c, found " + std::to_string(step.items.size()) +
                        " numbers");
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
    if (result.has(static_cast<MuonItem>(word))) {
      return Problem{"out-of-range", "\"" + shown(tree.node(item).scalar) + "\" is given twice",
                     "each word at most once"};
    }
    result.list.push_back(static_cast<MuonItem>(word));
  }
  value = std::move(result);
  return std::nullopt;
}

std::string write_value(const MuonCoefficients& value) {
  if (value.list.empty()) return std::string(word_of(value.set));
  std::string text;
  for (const MuonTriple& triple : value.list) {
    text += (text.empty() ? "[" : ", [") + write_value(triple[0]) + ", " + write_value(triple[1]) +
            ", " + write_value(triple[2]) + "]";
  }
  return "[" + text + "]";
}

std::string write_value(const MuonItems& value) {
  std::string text;
  for (const MuonItem item : value.list) {
    text += (text.empty() ? "" : ", ") + std::string(word_of(item));
  }
  return "[" + text + "]";
}

}  // namespace trainctl
