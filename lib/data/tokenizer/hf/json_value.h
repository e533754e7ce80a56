// A JSON file whose values know their place, so that each error names the file and the path to the
// value: "FILE: model.merges[3]: ...".
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace trainctl::hf {

/// The deepest nesting of sequences in sequences.
inline constexpr int deepest_sequence = 16;

/// `text` in quotes, with escapes as in JSON, cut to a length for messages.
std::string in_quotes(const std::string& text);

/// A value of a JsonFile, or an absent value; absent and null values are the same. Must not outlive
/// its file. Each function throws Error{bad_data} if the value is of another kind than it needs.
class JsonValue {
 public:
  bool is_null() const;
  bool is_text() const;
  bool is_list() const;
  bool is_object() const;

  /// A member of an object; absent where the object lacks it.
  JsonValue operator[](std::string_view key) const;
  /// The boolean; false if the value is null or absent.
  bool flag() const;
  std::string text() const;
  std::int64_t whole(std::int64_t least, std::int64_t most) const;
  /// Calls visit(item) for each item of a list, in order.
  void each_item(const std::function<void(const JsonValue&)>& visit) const;
  /// Calls visit(key, value) for each member of an object.
  void each_member(const std::function<void(const std::string&, const JsonValue&)>& visit) const;
  /// Refuses members of an object other than `keys`.
  void allow_only(std::initializer_list<std::string_view> keys) const;
  /// Throws Error{bad_data} with the place of the value and `why`.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  friend class JsonFile;
  JsonValue(const std::filesystem::path& file, const void* value, std::string path)
      : file_(&file), value_(value), path_(std::move(path)) {}
  [[noreturn]] void expected(const std::string& what) const;

  const std::filesystem::path* file_;
  const void* value_;  // a value of the JSON library; null if absent
  std::string path_;   // "" for the whole document
};

class JsonFile {
 public:
  /// Throws Error{missing_input | bad_data (FILE:LINE:COLUMN)}.
  explicit JsonFile(std::filesystem::path path);
  ~JsonFile();
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  JsonValue root() const;

 private:
  struct Document;
  std::filesystem::path path_;
  std::unique_ptr<Document> document_;
};

}  // namespace trainctl::hf
