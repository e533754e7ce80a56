// Describes a key of a field list in words, for the reference page and for explanations.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/text.h"
#include "config/schema/fields.h"
#include "config/schema/list_values.h"
#include "config/schema/optimizers.h"
#include "config/schema/values.h"

namespace trainctl {

namespace detail {
inline std::string code(std::string_view text) { return formatted("`{}`", text); }
/// The words of a choice: "`fp32`, `bf16`".
template <class Choice>
std::string word_list() {
  std::string listed;
  for (const Word& word : words_of<Choice>) {
    if (word.is_alias) continue;
    listed += (listed.empty() ? "" : ", ") + code(word.text);
  }
  return listed;
}
}  // namespace detail

/// The meaning of a key. For a key that not all optimizers read, also the optimizers that read it,
/// with their defaults if those differ: "Decay of the second moment (adamw; lion: 0.99)".
inline std::string meaning_of(const std::string& path, const Field& field) {
  std::string readers;
  constexpr std::string_view section = "optimizer.";
  for (const OptimizerRow& row : optimizer_rows) {
    if (!path.starts_with(section) || !row.reads(path.substr(section.size()))) continue;
    readers += (readers.empty() ? "" : "; ") + std::string(word_of(row.type));
    for (const OptimizerKey& key : row.keys) {
      if (path != std::string(section) + std::string(key.name) || !key.usual) continue;
      readers += ": " + write_value(*key.usual);
    }
  }
  return std::string(field.meaning) + (readers.empty() ? "" : " (" + readers + ")");
}

/// The type of a value: "whole number", "true or false", "word".
template <class Value>
std::string type_of(const Field& field) {
  if constexpr (IsChoice<Value>) return "word";
  if constexpr (std::is_same_v<Value, bool>) return "true or false";
  if constexpr (std::is_integral_v<Value>) {
    return field.unit == "count" ? "whole number, or with k, M or B" : "whole number";
  }
  if constexpr (std::is_floating_point_v<Value>) {
    return field.unit == "gib" ? "number, or with MB, GB, MiB or GiB" : "number";
  }
  if constexpr (std::is_same_v<Value, IntList>) return "list of whole numbers";
  if constexpr (std::is_same_v<Value, NumberList>) return "list of numbers";
  if constexpr (std::is_same_v<Value, DatasetSplit>) return "word or list of lists";
  if constexpr (std::is_same_v<Value, FusionValue>) return "null, whole number or list";
  if constexpr (std::is_same_v<Value, CpCommTypes>) return "word or list of words";
  if constexpr (std::is_same_v<Value, NetworkLevels> || std::is_same_v<Value, OptimizerGroups>) {
    return "list of maps";
  }
  if constexpr (std::is_same_v<Value, MuonCoefficients>) return "word or list of lists";
  if constexpr (std::is_same_v<Value, MuonItems>) return "list of words";
  return field.string_words.empty() ? "string" : "word";
}

/// The allowed values as Markdown: "1 to 64" or "`cpu`, `cuda`"; "" without limits.
template <class Value>
std::string range_of(const Field& field) {
  std::string listed;
  if constexpr (std::is_same_v<Value, CpCommTypes>) return range_of<CpCommType>(field);
  if constexpr (IsChoice<Value>) return detail::word_list<Value>();
  if constexpr (std::is_same_v<Value, std::string>) {
    for (const std::string& word : split_words(field.string_words)) {
      listed +=
          (listed.empty() ? "" : ", ") + detail::code(word + (word.ends_with(':') ? "NAME" : ""));
    }
    return listed.empty() && field.range.has_least() ? "not empty" : listed;
  }
  if constexpr (std::is_same_v<Value, DatasetSplit>) {
    return "`data_parallel`, `full_batch`, or one list for each input";
  }
  if constexpr (std::is_same_v<Value, FusionValue>) return "at least 1, or rising from 0";
  if constexpr (std::is_same_v<Value, NetworkLevels>) return "";
  if constexpr (std::is_same_v<Value, MuonCoefficients>) {
    return detail::word_list<MuonSet>() + ", or 1 to 100 of [a, b, c]";
  }
  if constexpr (std::is_same_v<Value, MuonItems>) return detail::word_list<MuonItem>();
  if constexpr (std::is_same_v<Value, OptimizerGroups>) {
    return formatted("at most {} entries", max_optimizer_groups);
  }
  if (std::is_same_v<Value, std::uint64_t> && !field.range.has_least()) return "at least 0";
  return field.range.to_string();
}

/// A value as Markdown: "`fp32`".
template <class Value>
std::string default_of(const Value& value) {
  return detail::code(write_value(value));
}

}  // namespace trainctl
