// Writes JSON as text step by step, without a document in memory, so that a list of a hundred
// thousand groups is as fast as the disk. All JSON of this program is written here; nlohmann/json
// only reads.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

class JsonText {
 public:
  /// mixed: each container is on lines, indented by two more spaces, or on one line, as
  /// open_object() and open_array() select. The other styles equal those of nlohmann/json byte for
  /// byte: without spaces, or one value per line, indented by one or two more spaces. They differ
  /// from mixed in numbers with a fraction ("1.0", not "1") and control characters in texts ("\n",
  /// not "\u000a").
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
  void value(double number);  // written as null if not finite
  void value(bool truth);
  void value(std::string_view text);  // bytes that are not UTF-8 are replaced, except in mixed
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(const char* text) { value(std::string_view(text)); }
  /// Writes a value of nlohmann/json with its keys in its order.
  void document(const nlohmann::json& value);
  void document(const nlohmann::ordered_json& value);
  /// Appends text that is already JSON.
  void json(std::string_view text) {
    before_item();
    text_ += text;
  }
  /// Writes an array on one line.
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

  /// Writes an object of members on one line, given as names and values by turns.
  template <class... Parts>
  void row(const Parts&... parts) {
    open_object(Form::one_line);
    members(parts...);
    close();
  }

  /// Writes an array with an object for each item, to which write(item) adds the members.
  template <class Items, class Write>
  void objects(std::string_view name, const Items& items, Form form, const Write& write) {
    key(name).open_array();
    for (const auto& item : items) {
      open_object(form);
      write(item);
      close();
    }
    close();
  }

  /// Writes an array of items that are already JSON, one per line.
  void json_member(std::string_view name, const std::vector<std::string>& items) {
    key(name).open_array();
    for (const std::string& item : items) json(item);
    close();
  }

  /// The text so far; complete after every container is closed.
  std::string text() { return std::move(text_); }
  /// text() with a newline at its end.
  std::string take() { return std::move(text_) + "\n"; }

 private:
  void members() {}
  template <class Value, class... More>
  void members(std::string_view name, const Value& held, const More&... more) {
    member(name, held);
    members(more...);
  }
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

/// A value of nlohmann/json as text in one of its styles, without a newline at the end.
std::string json_text(const nlohmann::json& document, JsonText::Style style);
std::string json_text(const nlohmann::ordered_json& document, JsonText::Style style);

}  // namespace trainctl
