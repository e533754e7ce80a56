#include "formats/json_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace trainctl {

JsonText& JsonText::key(std::string_view name) {
  before_item();
  quote(name);
  text_ += ": ";
  after_key_ = true;
  return *this;
}

void JsonText::open(char bracket, Form form) {
  before_item();
  text_ += bracket;
  const bool inside_line = !levels_.empty() && levels_.back().form == Form::one_line;
  levels_.push_back({bracket == '{' ? '}' : ']', inside_line ? Form::one_line : form, true});
}

void JsonText::close() {
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty && level.form == Form::lines) new_line();
  text_ += level.closing;
}

void JsonText::value(std::int64_t number) {
  before_item();
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text_.append(digits.data(), end);
}

void JsonText::value(double number) {
  before_item();
  if (!std::isfinite(number)) {
    text_ += "null";
    return;
  }
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text_.append(digits.data(), end);
}

void JsonText::value(bool truth) {
  before_item();
  text_ += truth ? "true" : "false";
}

void JsonText::value(std::string_view text) {
  before_item();
  quote(text);
}

void JsonText::before_item() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (levels_.empty()) return;
  Level& level = levels_.back();
  if (!level.empty) text_ += level.form == Form::lines ? "," : ", ";
  level.empty = false;
  if (level.form == Form::lines) new_line();
}

void JsonText::new_line() {
  text_ += '\n';
  text_.append(2 * levels_.size(), ' ');
}

void JsonText::quote(std::string_view text) {
  text_ += '"';
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      text_ += '\\';
      text_ += letter;
    } else if (byte < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(byte));
      text_ += escape.data();
    } else {
      text_ += letter;
    }
  }
  text_ += '"';
}

}  // namespace trainctl
