#include "base/json_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace trainctl {

namespace {

template <class Document>
void write_document(JsonText& text, const Document& document) {
  if (document.is_object()) {
    text.open_object();
    for (const auto& [name, item] : document.items()) write_document(text.key(name), item);
    text.close();
  } else if (document.is_array()) {
    text.open_array();
    for (const Document& item : document) write_document(text, item);
    text.close();
  } else if (document.is_string()) {
    text.value(document.template get_ref<const std::string&>());
  } else if (document.is_boolean()) {
    text.value(document.template get<bool>());
  } else if (document.is_number_unsigned()) {
    text.value(document.template get<std::uint64_t>());
  } else if (document.is_number_integer()) {
    text.value(document.template get<std::int64_t>());
  } else if (document.is_number()) {
    text.value(document.template get<double>());
  } else {
    text.json("null");
  }
}

template <class Document>
std::string text_of_document(const Document& document, JsonText::Style style) {
  JsonText text(style);
  text.document(document);
  return text.text();
}

template <class Number>
void append_number(Number number, std::string& text) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
}

}  // namespace

JsonText& JsonText::key(std::string_view name) {
  before_item();
  quote(name);
  text_ += style_ == Style::compact ? ":" : ": ";
  after_key_ = true;
  return *this;
}

void JsonText::open(char bracket, Form form) {
  before_item();
  text_ += bracket;
  const bool inside_line = !levels_.empty() && levels_.back().form == Form::one_line;
  if (inside_line || style_ == Style::compact) form = Form::one_line;
  if (style_ == Style::indent_1 || style_ == Style::indent_2) form = Form::lines;
  levels_.push_back({bracket == '{' ? '}' : ']', form, true});
}

void JsonText::close() {
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty && level.form == Form::lines) new_line();
  text_ += level.closing;
}

void JsonText::value(std::int64_t number) {
  before_item();
  append_number(number, text_);
}

void JsonText::value(std::uint64_t number) {
  before_item();
  append_number(number, text_);
}

void JsonText::value(double number) {
  before_item();
  if (!std::isfinite(number)) {
    text_ += "null";
  } else if (style_ == Style::mixed) {
    append_number(number, text_);
  } else {
    text_ += nlohmann::json(number).dump();
  }
}

void JsonText::document(const nlohmann::json& value) { write_document(*this, value); }

void JsonText::document(const nlohmann::ordered_json& value) { write_document(*this, value); }

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
  const bool tight = level.form == Form::lines || style_ == Style::compact;
  if (!level.empty) text_ += tight ? "," : ", ";
  level.empty = false;
  if (level.form == Form::lines) new_line();
}

void JsonText::new_line() {
  text_ += '\n';
  text_.append((style_ == Style::indent_1 ? 1 : 2) * levels_.size(), ' ');
}

void JsonText::quote(std::string_view text) {
  if (style_ != Style::mixed) {
    text_ += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return;
  }
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

std::string json_text(const nlohmann::json& document, JsonText::Style style) {
  return text_of_document(document, style);
}

std::string json_text(const nlohmann::ordered_json& document, JsonText::Style style) {
  return text_of_document(document, style);
}

}  // namespace trainctl
