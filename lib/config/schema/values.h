// Single values: converts YAML text to typed values by the rule of a field, and back to text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "config/report/diagnostics.h"
#include "config/schema/field.h"
#include "config/schema/words.h"
#include "config/yaml/numbers.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// Stores the value and returns none, or leaves it unchanged and returns the problem.
std::optional<Problem> read_value(const YamlNode& node, const Field& field, std::int64_t& value);
std::optional<Problem> read_value(const YamlNode& node, const Field& field, std::uint64_t& value);
std::optional<Problem> read_value(const YamlNode& node, const Field& field, double& value);
std::optional<Problem> read_value(const YamlNode& node, const Field& field, bool& value);
std::optional<Problem> read_value(const YamlNode& node, const Field& field, std::string& value);
/// Reads one of `words`; `value` is the number of the enumerator.
std::optional<Problem> read_word(const YamlNode& node, std::span<const Word> words, int& value);

/// A problem "wrong-type": the node is not `expected`, such as "a map of keys".
Problem wrong_type(const YamlNode& node, const std::string& expected);
/// The text with ASCII letters in lower case.
std::string lower_case(std::string_view text);
/// A value as quoted in messages: shortened, with control characters replaced.
std::string shown(std::string_view text);

/// YAML text that every reader, also of YAML 1.1, reads as the same value.
std::string write_value(double value);
std::string write_value(std::int64_t value);
std::string write_value(std::uint64_t value);
std::string write_value(bool value);
std::string write_value(const std::string& value);
/// The YAML word of a choice.
template <IsChoice Choice>
std::string write_value(Choice value) {
  return std::string(word_of(value));
}

/// The words without aliases as "a, b or c".
std::string join_words(std::span<const Word> words);
/// Splits "a|b" into its words.
std::vector<std::string> split_words(std::string_view words);
/// Splits at the character `between`; drops an empty last part.
std::vector<std::string> split_at(std::string_view text, char between);

}  // namespace trainctl
