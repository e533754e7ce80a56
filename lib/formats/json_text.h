// Writes JSON as text while it comes, without a document in memory: a listing of a hundred
// thousand groups is then as fast as the disk. Containers are spread over lines or kept on one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

class JsonText {
 public:
  enum class Form : std::uint8_t { lines, one_line };

  JsonText& key(std::string_view name);
  void open_object(Form form = Form::lines) { open('{', form); }
  void open_array(Form form = Form::lines) { open('[', form); }
  void close();

  void value(std::int64_t number);
  void value(int number) { value(static_cast<std::int64_t>(number)); }
  void value(double number);  // null where it is not finite
  void value(bool truth);
  void value(std::string_view text);
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(const char* text) { value(std::string_view(text)); }
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

  std::string text_;
  std::vector<Level> levels_;
  bool after_key_ = false;
};

}  // namespace trainctl
