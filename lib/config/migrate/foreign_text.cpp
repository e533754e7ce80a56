// Reads command lines and shell scripts, and files of Python assignments or TOML.

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>

#include "config/migrate/migration.h"
#include "config/schema/values.h"
#include "config/yaml/numbers.h"

namespace trainctl {
namespace {

constexpr std::size_t max_word = 4096;  // limit for variables that contain each other

/// A word of a shell text, or a mark for the end of a line or list.
struct ShellWord {
  std::string text;
  Span span;
  bool ends = false;
};

/// Splits a shell text into words: removes quotes and comments, and joins continued lines.
class ShellWords {
 public:
  explicit ShellWords(const std::string& text) : text_(text) {}

  std::vector<ShellWord> read() {
    while (at_ < text_.size() && words_.size() < 4 * max_foreign_values) step();
    finish();
    end();
    return std::move(words_);
  }

 private:
  void step() {
    const char c = text_[at_];
    const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (c == '\\' && next == '\n') {
      finish();
      advance(2);
    } else if (c == '\n') {
      finish();
      if (depth_ == 0) end();
      advance(1);
    } else if (c == ' ' || c == '\t' || c == '\r') {
      finish();
      advance(1);
    } else if (c == '#' && !open_) {
      while (at_ < text_.size() && text_[at_] != '\n') advance(1);
    } else if (c == '"' || c == '\'') {
      quoted(c);
    } else if (c == '(' || c == ')') {
      finish();
      end();
      depth_ = c == '(' ? 1 : 0;
      advance(1);
    } else if (c == ';' || c == '|' || c == '&') {
      finish();
      end();
      advance(1);
    } else {
      take(c);
      advance(1);
    }
  }

  void quoted(char mark) {
    begin();
    advance(1);
    while (at_ < text_.size() && text_[at_] != mark) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
        advance(2);
        continue;
      }
      const bool blank = text_[at_] == '\n' || text_[at_] == ' ';
      take(blank ? ' ' : text_[at_]);
      advance(1);
    }
    advance(1);
  }

  void begin() {
    if (open_) return;
    open_ = true;
    word_ = {"", {0, line_, column_, column_}, false};
  }
  void take(char c) {
    begin();
    if (word_.text.size() < max_word) word_.text += c;
  }
  void finish() {
    if (!open_) return;
    open_ = false;
    word_.span.end_column = column_;
    words_.push_back(std::move(word_));
  }
  void end() { words_.push_back({"", {}, true}); }
  void advance(std::size_t count) {
    for (; count > 0 && at_ < text_.size(); --count) {
      const bool line = text_[at_++] == '\n';
      column_ = line ? 1 : column_ + 1;
      line_ += line ? 1 : 0;
    }
  }

  const std::string& text_;
  std::size_t at_ = 0;
  int line_ = 1;
  int column_ = 1;
  int depth_ = 0;
  bool open_ = false;
  ShellWord word_;
  std::vector<ShellWord> words_;
};

bool begins_name(char c) {
  return is_name_character(c) && std::isdigit(static_cast<unsigned char>(c)) == 0;
}

/// Whether the value is known only when the script is started: "$1", "$(hostname)", "$((2*N))".
bool is_given_at_start(const std::string& text) {
  for (std::size_t i = text.find('$'); i < text.size(); i = text.find('$', i + 1)) {
    const std::size_t name = i + (i + 1 < text.size() && text[i + 1] == '{' ? 2 : 1);
    if (name >= text.size() || !begins_name(text[name])) return true;
  }
  return false;
}

/// Replaces known variables by their values; others become ${NAME}, and "$1" becomes ${ARG1}.
std::string expanded(const std::string& text, const std::map<std::string, std::string>& variables) {
  std::string result;
  for (std::size_t i = 0; i < text.size() && result.size() < max_word; ++i) {
    if (text[i] != '$' || i + 1 == text.size()) {
      result += text[i];
      continue;
    }
    const bool braces = text[i + 1] == '{';
    const std::size_t first = i + (braces ? 2 : 1);
    std::size_t last = first;
    while (last < text.size() && is_name_character(text[last])) ++last;
    const std::string name = text.substr(first, last - first);
    const auto known = variables.find(name);
    const std::string shown = name.empty() || !begins_name(name[0]) ? "ARG" + name : name;
    result += known != variables.end() ? known->second : "${" + shown + "}";
    if (braces) last = std::min(text.find('}', last), text.size() - 1) + 1;
    i = last - 1;
  }
  return result;
}

bool is_option(const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const char second = word[1];
  return second == '-' ? word.size() > 2 : std::isalpha(static_cast<unsigned char>(second)) != 0;
}

/// Sets a variable if the word is NAME=value; returns whether it is.
bool set_variable(const std::string& word, std::map<std::string, std::string>& variables) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) return false;
  if (!std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                   is_name_character)) {
    return false;
  }
  const std::string value = word.substr(equals + 1);
  // A variable known only at the start keeps its name in the result, for the reader.
  if (!is_given_at_start(value)) variables[word.substr(0, equals)] = expanded(value, variables);
  return true;
}

bool holds_options(const std::string& word, const std::map<std::string, std::string>& variables) {
  return trimmed(expanded(word, variables)).starts_with("--");
}

/// Handles NAME=value; reads the options that older scripts keep in such values.
void take_variable(const ShellWord& word, std::map<std::string, std::string>& variables,
                   std::vector<ForeignValue>& values) {
  if (!set_variable(word.text, variables)) return;
  const std::string value = word.text.substr(word.text.find('=') + 1);
  if (!trimmed(value).starts_with("--")) return;
  std::vector<ForeignValue> inner = read_arguments(expanded(value, variables));
  for (ForeignValue& one : inner) {
    one.span = word.span;
    if (values.size() < max_foreign_values) values.push_back(std::move(one));
  }
}

}  // namespace

std::vector<ForeignValue> read_arguments(const std::string& text) {
  std::vector<ForeignValue> values;
  std::map<std::string, std::string> variables;
  bool open = false;  // the last option still takes words
  for (const ShellWord& word : ShellWords(text).read()) {
    if (values.size() >= max_foreign_values) break;
    if (word.ends) {
      open = false;
    } else if (is_option(word.text)) {
      const std::size_t equals = word.text.find('=');
      ForeignValue value;
      value.key = word.text.substr(0, equals);
      value.span = word.span;
      if (equals != std::string::npos) {
        value.words = {expanded(word.text.substr(equals + 1), variables)};
      }
      open = equals == std::string::npos;
      values.push_back(std::move(value));
    } else if (!open) {
      take_variable(word, variables, values);
    } else if (word.text.find("[@]") == std::string::npos && !holds_options(word.text, variables)) {
      for (std::string& part : split_at(expanded(word.text, variables), ' ')) {
        if (!part.empty()) values.back().words.push_back(std::move(part));
      }
    } else {
      open = false;  // such as "${MODEL_ARGS[@]}", whose options are read elsewhere
    }
  }
  for (ForeignValue& value : values) value.is_list = value.words.size() > 1;
  return values;
}

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r") - first + 1));
}

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

namespace {

/// The product of a text such as "5 * 8", as text; other text is returned unchanged.
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

/// The line without a comment at its end; a # in quotes does not begin one.
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

/// Calls `take(line, number)` for each line of a text; numbers start at 1.
template <class Take>
void each_line(const std::string& text, Take take) {
  int number = 0;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    take(text.substr(start, end - start), ++number);
    start = end + 1;
  }
}

/// Reads `key = literal`; returns false for other lines.
bool read_assignment(const std::string& line, int number, const std::string& table,
                     std::vector<ForeignValue>& values) {
  const std::size_t equals = line.find('=');
  if (equals == std::string::npos || values.size() >= max_foreign_values) return false;
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
  if (option) value.is_code = false;  // words of a shell need no quotes
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
