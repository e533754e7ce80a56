#include "data/jsonl.h"

#include <cstddef>
#include <nlohmann/json.hpp>

namespace trainctl {

namespace {

/// The parser's reason, without the text that it quotes, which may be long.
std::string reason_in(const std::string& message) {
  const std::size_t begin = message.find(" - ");
  const std::size_t end = message.find("; last read");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  return ": " + message.substr(begin + 3, end - begin - 3);
}

/// Listens to the parser and keeps one string of the outermost object.
class TextOfKey : public nlohmann::json_sax<nlohmann::json> {
 public:
  TextOfKey(std::string_view key, std::string& text) : key_(key), text_(text) {}

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("binary"); }
  bool string(string_t& text) override {
    if (is_wanted()) {
      text_.swap(text);
      kind_ = "text";
    }
    return value("a string");
  }
  bool start_object(std::size_t) override {
    value("an object");
    ++depth_;
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override {
    value("an array");
    ++depth_;
    return true;
  }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    if (depth_ == 1) is_key_ = name == key_;
    return true;
  }
  bool parse_error(std::size_t place, const std::string&,
                   const nlohmann::json::exception& failure) override {
    problem_ = "not valid JSON at column " + std::to_string(place) + reason_in(failure.what());
    return false;
  }

  std::string problem() const {
    if (!problem_.empty()) return problem_;
    if (outermost_ != "an object") return "expected a JSON object, found " + outermost_;
    if (kind_.empty()) {
      return "the object has no key \"" + std::string(key_) +
             "\"; trainctl data build --json-key KEY takes the text from another";
    }
    if (kind_ != "text") return "\"" + std::string(key_) + "\" is " + kind_ + ", not a string";
    return "";
  }

 private:
  bool is_wanted() const { return depth_ == 1 && is_key_ && outermost_ == "an object"; }
  bool value(const char* kind) {
    if (depth_ == 0) outermost_ = kind;
    if (is_wanted() && kind != std::string_view("a string")) kind_ = kind;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  std::string_view key_;
  std::string& text_;
  int depth_ = 0;
  bool is_key_ = false;
  std::string outermost_;
  std::string kind_;  // of what the key holds; "text" for a string
  std::string problem_;
};

}  // namespace

std::string read_json_text(std::string_view line, std::string_view key, std::string& text) {
  TextOfKey listener(key, text);
  nlohmann::json::sax_parse(line.begin(), line.end(), &listener);
  return listener.problem();
}

}  // namespace trainctl
