#include "config/schema/known_paths.h"

#include <algorithm>
#include <map>
#include <utility>

#include "config/schema/describe.h"
#include "config/schema/presets.h"

namespace trainctl {
namespace {

/// Every path of the schema with its place in the order.
class PathLister {
 public:
  PathLister(std::map<std::string, KnownPath>& paths, std::string path)
      : paths_(paths), path_(std::move(path)) {}

  template <class Value>
  void operator()(const Value&, const Field& field) {
    KnownPath& known = add(field);
    known.is_bool = std::is_same_v<Value, bool>;
    known.words = words_for<Value>(field);
  }
  template <class Value>
  void operator()(const std::optional<Value>&, const Field& field) {
    (*this)(Value{}, field);
  }
  template <ListedSection Item>
  void operator()(const std::vector<Item>&, const Field& field) {
    add(field);
  }
  template <class Section>
  void section(const Section& value, const Field& field) {
    add(field).is_section = true;
    PathLister inner(paths_, path_ + std::string(field.key) + ".");
    fields(inner, value);
  }

 private:
  template <class Value>
  static std::vector<std::string> words_for(const Field& field) {
    if constexpr (std::is_same_v<Value, bool>) return {"true", "false"};
    std::vector<std::string> words;
    if constexpr (std::is_enum_v<Value>) {
      for (const Word& word : words_of<Value>) {
        if (word.standing != Word::Standing::alias) words.emplace_back(word.text);
      }
    }
    if (field.key == "preset") return preset_names();
    for (std::string& word : split_words(field.string_words)) words.push_back(std::move(word));
    return words;
  }

  KnownPath& add(const Field& field) {
    KnownPath& known = paths_[path_ + std::string(field.key)];
    known.order = static_cast<int>(paths_.size());
    return known;
  }

  std::map<std::string, KnownPath>& paths_;
  std::string path_;
};

const std::map<std::string, KnownPath>& known_paths() {
  static const std::map<std::string, KnownPath> paths = [] {
    std::map<std::string, KnownPath> found;
    PathLister lister(found, "");
    const Config config;
    fields(lister, config);
    return found;
  }();
  return paths;
}

}  // namespace

const KnownPath* find_known_path(const std::string& path) {
  const auto found = known_paths().find(path);
  return found == known_paths().end() ? nullptr : &found->second;
}

const std::vector<std::string>& all_known_paths() {
  static const std::vector<std::string> paths = [] {
    std::vector<std::string> found(known_paths().size());
    for (const auto& [path, known] : known_paths()) {
      found[static_cast<std::size_t>(known.order - 1)] = path;
    }
    return found;
  }();
  return paths;
}

bool is_unique_key(const std::string& key) {
  return std::count_if(known_paths().begin(), known_paths().end(), [&](const auto& known) {
           return known.first == key || known.first.ends_with("." + key);
         }) == 1;
}

}  // namespace trainctl
