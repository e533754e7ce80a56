#include "data/tokenizer/hf/json_value.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace trainctl::hf {

namespace {

using Json = nlohmann::json;

constexpr std::int64_t max_file_bytes = std::int64_t{1} << 30;

const Json& json_of(const void* value) { return *static_cast<const Json*>(value); }

/// The reason in a message of the parser, without the quoted text, which may be long.
std::string parser_reason(const std::string& message) {
  const std::size_t begin = message.find(" - ");
  if (begin == std::string::npos) return "";
  return ": " + message.substr(begin + 3, message.find("; last read", begin) - begin - 3);
}

/// "LINE:COLUMN" of byte number `place`, counted from 1.
std::string place_in(std::string_view text, std::size_t place) {
  const std::string_view before = text.substr(0, place == 0 ? 0 : place - 1);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1);
  return formatted("{}:{}", line, column + 1);
}

/// The path of member `key` of the value at `path`.
std::string member_path(const std::string& path, std::string_view key) {
  const bool is_plain = !key.empty() && std::all_of(key.begin(), key.end(), [](char letter) {
    return letter == '_' || letter == '-' || std::isalnum(static_cast<unsigned char>(letter)) != 0;
  });
  if (!is_plain) return path + "[" + in_quotes(std::string(key)) + "]";
  return path + (path.empty() ? "" : ".") + std::string(key);
}

}  // namespace

std::string in_quotes(const std::string& text) {
  constexpr std::size_t most = 60;
  const std::string shown =
      Json(text.substr(0, most)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > most ? shown + "..." : shown;
}

struct JsonFile::Document {
  Json json;
};

bool JsonValue::is_null() const { return value_ == nullptr || json_of(value_).is_null(); }
bool JsonValue::is_text() const { return value_ != nullptr && json_of(value_).is_string(); }
bool JsonValue::is_list() const { return value_ != nullptr && json_of(value_).is_array(); }
bool JsonValue::is_object() const { return value_ != nullptr && json_of(value_).is_object(); }

void JsonValue::refuse(const std::string& why) const {
  throw Error(ExitCode::bad_data,
              file_->string() + ": " + (path_.empty() ? "" : path_ + ": ") + why);
}

void JsonValue::expected(const std::string& what) const {
  const std::string found = is_null()     ? (value_ == nullptr ? "nothing" : "null")
                            : is_text()   ? in_quotes(json_of(value_).get_ref<const std::string&>())
                            : is_list()   ? "a list"
                            : is_object() ? "an object"
                                          : json_of(value_).dump();
  refuse("expected " + what + ", found " + found);
}

JsonValue JsonValue::operator[](std::string_view key) const {
  if (!is_object()) expected("an object");
  const auto found = json_of(value_).find(key);
  const void* value = found == json_of(value_).end() ? nullptr : &*found;
  return {*file_, value, member_path(path_, key)};
}

bool JsonValue::flag() const {
  if (is_null()) return false;
  if (!json_of(value_).is_boolean()) expected("true or false");
  return json_of(value_).get<bool>();
}

std::string JsonValue::text() const {
  if (!is_text()) expected("a text");
  return json_of(value_).get<std::string>();
}

std::int64_t JsonValue::whole(std::int64_t least, std::int64_t most) const {
  const bool is_whole = value_ != nullptr && json_of(value_).is_number_integer();
  const bool fits =
      is_whole && (!json_of(value_).is_number_unsigned() ||
                   json_of(value_).get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  const std::int64_t number = fits ? json_of(value_).get<std::int64_t>() : 0;
  if (!fits || number < least || number > most) {
    expected("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

void JsonValue::each_item(const std::function<void(const JsonValue&)>& visit) const {
  if (!is_list()) expected("a list");
  std::size_t index = 0;
  for (const Json& item : json_of(value_)) {
    visit({*file_, &item, formatted("{}[{}]", path_, index++)});
  }
}

void JsonValue::each_member(
    const std::function<void(const std::string&, const JsonValue&)>& visit) const {
  if (!is_object()) expected("an object");
  for (const auto& [key, value] : json_of(value_).get_ref<const Json::object_t&>()) {
    visit(key, {*file_, &value, member_path(path_, key)});
  }
}

void JsonValue::allow_only(std::initializer_list<std::string_view> keys) const {
  each_member([&](const std::string& key, const JsonValue& value) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) value.refuse("not a known key");
  });
}

JsonFile::JsonFile(std::filesystem::path path)
    : path_(std::move(path)), document_(std::make_unique<Document>()) {
  const File file = File::open_to_read(path_);
  require(file.size() <= max_file_bytes, ExitCode::bad_data,
          path_.string() + ": larger than 1 GiB");
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, text);
  try {
    document_->json = Json::parse(text);
  } catch (const Json::parse_error& failure) {
    throw Error(ExitCode::bad_data, path_.string() + ":" + place_in(text, failure.byte) +
                                        ": not valid JSON" + parser_reason(failure.what()));
  } catch (const Json::exception& failure) {
    throw Error(ExitCode::bad_data, path_.string() + ": not valid JSON: a number is too large");
  }
}

JsonFile::~JsonFile() = default;

JsonValue JsonFile::root() const { return {path_, &document_->json, ""}; }

}  // namespace trainctl::hf
