#include "config/yaml/numbers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

namespace trainctl {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view without_sign(std::string_view text) {
  return text.starts_with('-') || text.starts_with('+') ? text.substr(1) : text;
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

bool has_leading_zero(std::string_view text) {
  const std::string_view digits = without_sign(text);
  return digits.size() > 1 && digits[0] == '0' && is_digit(digits[1]);
}

/// std::from_chars over the whole text, but accepting a leading "+".
template <class Number, class... Format>
std::errc convert(std::string_view text, Number& value, Format... format) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, format...);
  if (error == std::errc() && end != text.data() + text.size()) return std::errc::invalid_argument;
  return error;
}

bool is_decimal(std::string_view text) {
  const std::string_view digits = without_sign(text);
  double ignored = 0;
  return !digits.empty() && (is_digit(digits[0]) || digits[0] == '.') &&
         convert(text, ignored) != std::errc::invalid_argument;
}

/// A plain number for "1_000" (1000), "1,000" (1000) and "010" (10); "" if that is not possible.
std::string cleaned(std::string_view text) {
  std::string result;
  std::copy_if(text.begin(), text.end(), std::back_inserter(result),
               [](char c) { return c != '_' && c != ',' && c != '\''; });
  const std::size_t sign = without_sign(result).size() == result.size() ? 0 : 1;
  std::size_t first = std::min(result.find_first_not_of('0', sign), result.size() - 1);
  if (has_leading_zero(result)) {
    if (!is_digit(result[first])) --first;  // "00.5" becomes "0.5"
    result.erase(sign, first - sign);
  }
  return is_decimal(result) ? result : "";
}

template <class Integer>
Problem not_whole(std::string_view text) {
  if (has_leading_zero(text) && all_digits(without_sign(text))) {
    return {"wrong-type", "starts with a zero, which some readers take for octal", cleaned(text)};
  }
  double value = 0;
  const std::string number = is_decimal(text) ? std::string(text) : cleaned(text);
  const bool is_number = !number.empty() && convert(number, value) == std::errc();
  // Up to 2^53 the intended number is certain.
  const bool whole = is_number && value == std::floor(value) && std::abs(value) <= 0x1p53 &&
                     (std::is_signed_v<Integer> || value >= 0);
  return {"wrong-type", whole ? "is not written as a whole number" : "is not a whole number",
          whole ? plain_number(value) : ""};
}

template <class Integer>
std::optional<Problem> parse_integer(std::string_view text, Integer& value) {
  const std::string_view digits = without_sign(text);
  std::errc error = std::errc::invalid_argument;
  Integer result = 0;
  if (digits.starts_with("0x") && digits.size() == text.size()) {
    error = convert(digits.substr(2), result, 16);
    if (digits.size() == 2 || !std::isxdigit(static_cast<unsigned char>(digits[2]))) {
      error = std::errc::invalid_argument;
    }
  } else if (all_digits(digits) && !has_leading_zero(text)) {
    if (text.starts_with('-') && !std::is_signed_v<Integer>) {
      return Problem{"out-of-range", "is negative, but the value must be at least 0", ""};
    }
    error = convert(text, result);
  }
  if (error == std::errc::result_out_of_range) {
    const bool low = text.starts_with('-');
    const Integer limit =
        low ? std::numeric_limits<Integer>::min() : std::numeric_limits<Integer>::max();
    return Problem{"out-of-range",
                   std::string(low ? "is below " : "is above ") + std::to_string(limit) +
                       (low ? ", the smallest number that can be stored"
                            : ", the largest number that can be stored"),
                   ""};
  }
  if (error != std::errc()) return not_whole<Integer>(text);
  value = result;
  return std::nullopt;
}

}  // namespace

std::optional<Problem> parse_number(std::string_view text, std::int64_t& value) {
  return parse_integer(text, value);
}

std::optional<Problem> parse_number(std::string_view text, std::uint64_t& value) {
  return parse_integer(text, value);
}

std::optional<Problem> parse_number(std::string_view text, double& value) {
  if (has_leading_zero(text) && is_decimal(text)) {
    return Problem{"wrong-type", "starts with a zero, which some readers take for octal",
                   cleaned(text)};
  }
  if (is_decimal(text)) {
    double result = 0;
    if (convert(text, result) != std::errc()) {
      return Problem{"out-of-range", "cannot be stored as a double", ""};
    }
    value = result;
    return std::nullopt;
  }
  std::string lower;
  for (char c : without_sign(text)) lower += static_cast<char>(c | 0x20);
  if (lower == ".inf" || lower == ".nan" || lower == "inf" || lower == "nan" ||
      lower == "infinity") {
    return Problem{"out-of-range", "is not a finite number", ""};
  }
  const auto comma = text.find(',');
  const bool decimal_comma =
      comma != std::string_view::npos && text.find(',', comma + 1) == std::string_view::npos;
  std::string suggestion(text);
  if (decimal_comma) suggestion[comma] = '.';
  if (!decimal_comma || !is_decimal(suggestion)) suggestion = cleaned(text);
  if (decimal_comma && text.size() - comma == 4) suggestion.clear();  // "1,000" is ambiguous
  return Problem{"wrong-type", "is not a number", suggestion};
}

std::string plain_number(double value) {
  std::array<char, 400> text{};
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;  // exact in a double
  const auto end = whole ? std::to_chars(text.data(), text.data() + text.size(),
                                         static_cast<std::int64_t>(value))
                         : std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

}  // namespace trainctl
