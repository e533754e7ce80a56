// Single values: from YAML text to typed values by a field's rule, and back to text.
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

/// Each stores the value and returns nothing, or leaves it unchanged and returns the problem.
std::optional<Problem> read_value(const YamlNode& node, const Field& field, std::int64_t& value);
std::optional<Problem> read_value(const YamlNode& node, const Field& field, std::uint64_t& value);
std::optional<Problem> read_value(const YamlNode& node, const Field& field, double& value);
std::optional<Problem> read_value(const YamlNode& node, const Field& field, bool& value);
std::optional<Problem> read_value(const YamlNode& node, const Field& field, std::string& value);
/// One of `words`; `value` is the enumerator's number.
std::optional<Problem> read_word(const YamlNode& node, std::span<const Word> words, int& value);

/// "wrong-type": the node is not what is `expected` ("a map of keys").
Problem wrong_type(const YamlNode& node, const std::string& expected);
/// ASCII letters in lower case.
std::string lower_case(std::string_view text);
/// A value as it is quoted in messages: shortened, control characters replaced.
std::string shown(std::string_view text);

/// YAML that every reader, including YAML 1.1, reads as the same value.
std::string write_value(double value);
std::string write_value(std::int64_t value);
std::string write_value(std::uint64_t value);
std::string write_value(bool value);
std::string write_value(const std::string& value);
/// The word of a choice.
template <IsChoice Choice>
std::string write_value(Choice value) {
  return std::string(word_of(value));
}

/// "a, b or c", without aliases.
std::string join_words(std::span<const Word> words);
/// Splits "a|b" at the bars.
std::vector<std::string> split_words(std::string_view words);
/// Splits at another character; an empty last part is none.
std::vector<std::string> split_at(std::string_view text, char between);

}  // namespace trainctl
