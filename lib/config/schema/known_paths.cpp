#include "config/schema/known_paths.h"

#include <algorithm>
#include <map>
#include <type_traits>
#include <utility>

#include "base/at.h"
#include "config/schema/describe.h"
#include "config/schema/presets.h"

namespace trainctl {
namespace {

using KnownPaths = std::map<std::string, KnownPath>;

/// A visitor that lists every path of the schema with its position.
struct PathLister {
  KnownPaths& paths;

  template <class Value>
  void operator()(const std::string& path, const Value&, const Field& field) {
    KnownPath& known = add(path);
    known.is_bool = std::is_same_v<Value, bool>;
    known.words = words_for<Value>(field);
  }
  template <class Value>
  void operator()(const std::string& path, const std::optional<Value>&, const Field& field) {
    (*this)(path, Value{}, field);
  }
  template <ListedSection Item>
  void operator()(const std::string& path, const std::vector<Item>&, const Field&) {
    add(path);
  }
  void section(const std::string& path, const Field&) { add(path).is_section = true; }

 private:
  template <class Value>
  static std::vector<std::string> words_for(const Field& field) {
    if constexpr (std::is_same_v<Value, bool>) return {"true", "false"};
    std::vector<std::string> words;
    if constexpr (IsChoice<Value>) {
      for (const Word& word : words_of<Value>) {
        if (!word.is_alias) words.emplace_back(word.text);
      }
    }
    if (field.key == "preset") return preset_names();
    for (std::string& word : split_words(field.string_words)) words.push_back(std::move(word));
    return words;
  }

  KnownPath& add(const std::string& path) {
    KnownPath& known = paths[path];
    known.order = static_cast<int>(paths.size());
    return known;
  }
};

const KnownPaths& known_paths() {
  static const KnownPaths paths = [] {
    KnownPaths found;
    visit_values(Config{}, PathLister{found});
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
      at(found, known.order - 1) = path;
    }
    return found;
  }();
  return paths;
}

std::string last_key(std::string_view path) {
  return std::string(path.substr(path.rfind('.') + 1));
}

bool is_unique_key(const std::string& key) {
  return std::count_if(known_paths().begin(), known_paths().end(), [&](const auto& known) {
           return known.first == key || known.first.ends_with("." + key);
         }) == 1;
}

std::map<std::string, std::string, std::less<>> written_values(
    const Config& config, const std::function<bool(std::string_view path)>& wanted) {
  std::map<std::string, std::string, std::less<>> values;
  const auto write = [&]<class Value>(const std::string& path, const Value& value, const Field&) {
    if constexpr (!std::is_same_v<Value, std::vector<DataSource>>) {
      if (wanted(path)) values[path] = write_value(value);
    }
  };
  const auto each = [&]<class Value>(const std::string& path, const Value& value,
                                     const Field& field) {
    if constexpr (requires { value.has_value(); }) {
      if (value) write(path, *value, field);
    } else {
      write(path, value, field);
    }
  };
  visit_values(config, each);
  return values;
}

}  // namespace trainctl
