#include "config/schema/known_paths.h"

#include <algorithm>
#include <map>
#include <utility>

#include "config/schema/describe.h"

namespace trainctl {
namespace {

/// Every path of the schema with its place in the order.
class PathLister {
 public:
  PathLister(std::map<std::string, KnownPath>& paths, std::string path)
      : paths_(paths), path_(std::move(path)) {}

  template <class Value>
  void operator()(const Value&, const Field& field) {
    add(field).is_bool = type_of<Value>(field) == "true or false";
  }
  template <class Value>
  void operator()(const std::optional<Value>&, const Field& field) {
    add(field).is_bool = type_of<Value>(field) == "true or false";
  }
  void operator()(const std::vector<DataSource>&, const Field& field) { add(field); }
  template <class Section>
  void section(const Section& value, const Field& field) {
    add(field).is_section = true;
    PathLister inner(paths_, path_ + std::string(field.key) + ".");
    fields(inner, value);
  }

 private:
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

bool is_unique_key(const std::string& key) {
  return std::count_if(known_paths().begin(), known_paths().end(), [&](const auto& known) {
           return known.first == key || known.first.ends_with("." + key);
         }) == 1;
}

}  // namespace trainctl
