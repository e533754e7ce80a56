// Numbers in YAML: which spellings are accepted, and what a refused one probably meant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainctl {

/// A spelling of a number that was not accepted.
struct NumberProblem {
  std::string why;         // "is not a whole number"
  std::string suggestion;  // what to write instead, may be empty
  bool out_of_range = false;
};

/// Decimal digits with an optional sign, or 0x and hexadecimal digits.
std::optional<NumberProblem> parse_number(std::string_view text, std::int64_t& value);
std::optional<NumberProblem> parse_number(std::string_view text, std::uint64_t& value);
/// Also takes decimal fractions and exponents. Only finite values are accepted.
std::optional<NumberProblem> parse_number(std::string_view text, double& value);

/// A number with letters behind it: "10k", "80 GiB", "0.5h".
struct NumberWithUnit {
  double number = 0;
  std::string unit;
};
/// None without letters or without a number.
std::optional<NumberWithUnit> split_unit(std::string_view text);

/// The usual notation of a number: 4096 rather than 4096.0.
std::string plain_number(double value);

}  // namespace trainctl
