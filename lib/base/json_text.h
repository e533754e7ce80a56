// Writes JSON as text while it comes, without a document in memory: a listing of a hundred
// thousand groups is then as fast as the disk. Every document that this program writes is written
// here; nlohmann/json reads.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

class JsonText {
 public:
  /// mixed: containers are on lines, two spaces deeper than the one around them, or on one line, as
  /// open_object() says. The others are the forms of nlohmann/json, byte for byte: without any
  /// space, or each value on a line, one or two spaces deeper. Their numbers with a fraction differ
  /// from those of mixed ("1.0", not "1"), and control characters in their texts ("\n", not
  /// "\u000a").
  enum class Style : std::uint8_t { mixed, compact, indent_1, indent_2 };
  enum class Form : std::uint8_t { lines, one_line };

  explicit JsonText(Style style = Style::mixed) : style_(style) {}

  JsonText& key(std::string_view name);
  void open_object(Form form = Form::lines) { open('{', form); }
  void open_array(Form form = Form::lines) { open('[', form); }
  void close();

  void value(std::int64_t number);
  void value(std::uint64_t number);
  void value(int number) { value(static_cast<std::int64_t>(number)); }
  void value(double number);  // null where it is not finite
  void value(bool truth);
  void value(std::string_view text);  // bytes that are not UTF-8 are replaced, except in mixed
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(const char* text) { value(std::string_view(text)); }
  /// Writes a value that nlohmann/json holds, with its keys in its order.
  void document(const nlohmann::json& value);
  void document(const nlohmann::ordered_json& value);
  /// Appends text that is JSON already.
  void json(std::string_view text) {
    before_item();
    text_ += text;
  }
  /// An array on one line.
  template <class Item>
  void value(const std::vector<Item>& items) {
    open_array(Form::one_line);
    for (const Item& item : items) value(item);
    close();
  }

  template <class Value>
  void member(std::string_view name, const Value& held) {
    key(name).value(held);
  }

  /// An array of items that are JSON already, each on a line.
  void json_member(std::string_view name, const std::vector<std::string>& items) {
    key(name).open_array();
    for (const std::string& item : items) json(item);
    close();
  }

  /// The text so far; whole once everything is closed.
  std::string text() { return std::move(text_); }
  /// As text(), with a newline at its end.
  std::string take() { return std::move(text_) + "\n"; }

 private:
  struct Level {
    char closing = '}';
    Form form = Form::lines;
    bool empty = true;
  };
  void open(char bracket, Form form);
  void before_item();
  void new_line();
  void quote(std::string_view text);

  Style style_;
  std::string text_;
  std::vector<Level> levels_;
  bool after_key_ = false;
};

/// A document that nlohmann/json holds, in one of its forms. Without a newline at its end.
std::string json_text(const nlohmann::json& document, JsonText::Style style);
std::string json_text(const nlohmann::ordered_json& document, JsonText::Style style);

}  // namespace trainctl
