#include "config/migrate/foreign_text.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "config/schema/values.h"
#include "config/yaml/numbers.h"

namespace trainctl {

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r") - first + 1));
}

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

namespace {

/// The product of "5 * 8", as text; the text itself where it is none.
std::string product(const std::string& text) {
  std::int64_t result = 1;
  for (const std::string& factor : split_at(text, '*')) {
    std::int64_t value = 0;
    if (parse_number(trimmed(factor), value) || value < 0 || value > (1 << 30) ||
        result > (std::int64_t{1} << 30)) {
      return text;
    }
    result *= value;
  }
  return text.find('*') == std::string::npos ? text : std::to_string(result);
}

/// Without the comment behind it; a # in quotes is none.
std::string without_comment(const std::string& line) {
  char quote = '\0';
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote != '\0') {
      if (line[i] == quote) quote = '\0';
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else if (line[i] == '#') {
      return line.substr(0, i);
    }
  }
  return line;
}

/// Reads a literal of Python or TOML into `value`.
void read_literal(std::string text, ForeignValue& value) {
  text = trimmed(text);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    value.is_list = true;
    for (const std::string& item : split_at(text.substr(1, text.size() - 2), ',')) {
      ForeignValue one;
      read_literal(item, one);
      if (!one.words.empty() && !one.words.front().empty()) value.words.push_back(one.words[0]);
    }
    return;
  }
  const bool quotes = text.size() >= 2 && (text[0] == '"' || text[0] == '\'') &&
                      text.find(text[0], 1) == text.size() - 1;
  if (quotes) {
    value.words = {text.substr(1, text.size() - 2)};
    return;
  }
  if (text == "True") text = "true";
  if (text == "False") text = "false";
  text = product(text);
  std::string digits = text;
  std::erase(digits, '_');
  double number = 0;
  const bool is_number = !parse_number(digits, number);
  value.words = {is_number ? digits : text};
  value.is_code = !is_number && text != "true" && text != "false" && text != "None";
}

/// The lines of a text with their numbers.
template <class Take>
void each_line(const std::string& text, Take take) {
  int number = 0;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    take(text.substr(start, end - start), ++number);
    start = end + 1;
  }
}

/// `key = literal`; false where the line is something else.
bool read_assignment(const std::string& line, int number, const std::string& table,
                     std::vector<ForeignValue>& values) {
  const std::size_t equals = line.find('=');
  if (equals == std::string::npos || values.size() >= most_foreign_values) return false;
  std::string key = trimmed(line.substr(0, equals));
  const bool option = key.starts_with("--");
  if (option) key.erase(0, 2);
  const auto fits = [](char c) { return is_name_character(c) || c == '-' || c == '.' || c == '"'; };
  if (key.empty() || !std::all_of(key.begin(), key.end(), fits)) return false;
  std::erase(key, '"');
  ForeignValue value;
  value.key = table.empty() ? key : table + "." + key;
  const int column = static_cast<int>(line.find_first_not_of(" \t")) + 1;
  value.span = {0, number, column, column + static_cast<int>(key.size())};
  read_literal(line.substr(equals + 1), value);
  if (option) value.is_code = false;  // a shell's words need no quotes
  values.push_back(std::move(value));
  return true;
}

}  // namespace

std::vector<ForeignValue> read_assignments(const std::string& text) {
  std::vector<ForeignValue> values;
  each_line(text, [&](const std::string& line, int number) {
    const std::string code = without_comment(line);
    if (code.find("python") != std::string::npos || code.find("torchrun") != std::string::npos) {
      for (ForeignValue& value : read_arguments(code)) {
        value.span.line = number;
        if (value.words.size() == 1 && value.key.starts_with("--")) values.push_back(value);
      }
      return;
    }
    read_assignment(code, number, "", values);
  });
  return values;
}

std::vector<ForeignValue> read_toml(const std::string& text) {
  std::vector<ForeignValue> values;
  std::string table;
  each_line(text, [&](const std::string& line, int number) {
    const std::string code = trimmed(without_comment(line));
    if (code.starts_with('[') && code.ends_with(']') && code.find('=') == std::string::npos) {
      table = code.substr(1, code.size() - 2);
      return;
    }
    read_assignment(without_comment(line), number, table, values);
  });
  return values;
}

}  // namespace trainctl
