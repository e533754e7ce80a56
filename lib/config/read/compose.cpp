#include "config/read/compose.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "config/mindformers/mindformers_file.h"
#include "config/read/set_option.h"
#include "config/schema/values.h"
#include "config/upstream/mindformers_experts.h"
#include "config/yaml/variables.h"

namespace trainctl {
namespace {

constexpr std::size_t most_nodes = 4 * max_yaml_nodes;  // merging copies maps

std::string join(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

class Composer {
 public:
  Composer(YamlTree& tree, const Surroundings& around, Diagnostics& diagnostics)
      : tree_(tree), around_(around), diagnostics_(diagnostics) {}

  /// The root of the file with everything it includes, or -1 if it is not valid YAML.
  int read(std::string_view given, const std::string& name, std::string* kept) {
    const std::string text = normalise_text(given.substr(0, max_yaml_bytes + 4));
    if (kept != nullptr) *kept = text;
    bytes_ += text.size();
    const int index = tree_.add_text(Place::Origin::file, name);
    const YamlTree::Text source = tree_.texts.back();
    diagnostics_.add_source(name, text);
    if (!check_text(text, source, diagnostics_)) return -1;
    const int root = parse_yaml(tree_, text, index, diagnostics_);
    if (root < 0 || tree_.node(root).kind != YamlNode::Kind::map) return root;
    interpolate(tree_, root, around_, diagnostics_);
    const std::vector<int> wanted = take_includes(root);
    spread_overrides(root, -1);
    spellings_.merge(carry_mindformers(tree_, root, diagnostics_));
    spellings_.merge(carry_router(tree_, root, diagnostics_));
    spellings_.merge(apply_upstream(tree_, root, diagnostics_));
    if (wanted.empty()) return root;
    open_.push_back(name);
    const int all = read_included(wanted, name);
    open_.pop_back();
    merge(all, root, "");
    return all;
  }

  /// Warns about each !override that overrides nothing.
  void check_overrides() {
    for (std::size_t i = 0; i < tree_.override_tags.size(); ++i) {
      if (used_.contains(static_cast<int>(i))) continue;
      const YamlTree::OverrideTag& tag = tree_.override_tags[i];
      diagnostics_.add({Severity::warning, "nothing-overridden", tag.path,
                        "!override has no effect: no included file gives this value",
                        "remove the tag", tree_.place(tag.span)});
    }
  }

  bool missing() const { return missing_; }
  const Spellings& spellings() const { return spellings_; }
  const std::map<std::string, Place>& included_by() const { return included_by_; }

 private:
  void complain(Problem problem, const std::string& path, const Span& where) {
    diagnostics_.add({Severity::error, std::move(problem.code), path, std::move(problem.message),
                      std::move(problem.help), tree_.place(where)});
  }

  /// Returns the scalars of the top-level key include and removes the key.
  std::vector<int> take_includes(int root) {
    const YamlEntry* entry = tree_.find(root, "include");
    if (entry == nullptr) return {};
    const YamlNode& node = tree_.node(entry->value);
    const bool list = node.kind == YamlNode::Kind::sequence;
    std::vector<int> paths = list ? node.items : std::vector<int>{entry->value};
    std::erase_if(paths, [&](int path) {
      const YamlNode& given = tree_.node(path);
      if (given.kind == YamlNode::Kind::scalar && !given.scalar.empty()) return false;
      missing_ = true;
      complain(wrong_type(given, list ? "a path" : "a path or a list of paths"), "include",
               given.span);
      return true;
    });
    std::erase_if(tree_.node(root).entries, [](const YamlEntry& e) { return e.key == "include"; });
    return paths;
  }

  /// Marks everything inside an overriding map as overriding, because the map may be taken apart.
  void spread_overrides(int map, int tag) {
    for (const YamlEntry& entry : std::vector<YamlEntry>(tree_.node(map).entries)) {
      YamlNode& value = tree_.node(entry.value);
      if (tag >= 0 && value.overrides < 0) value.overrides = tag;
      if (visited_.insert(entry.value).second) spread_overrides(entry.value, value.overrides);
    }
  }

  int read_included(const std::vector<int>& paths, const std::string& name) {
    YamlNode empty;
    empty.kind = YamlNode::Kind::map;
    empty.span = {0, 1, 1, 2};
    const int all = tree_.add_node(std::move(empty));
    for (int path : paths) {
      const YamlNode given = tree_.node(path);
      const auto folder = std::filesystem::path(name).parent_path();
      const std::string file = (folder / given.scalar).lexically_normal().string();
      included_by_.emplace(file, tree_.place(given.span));
      if (const auto problem = include(all, file)) {
        missing_ = true;
        complain(*problem, "include", given.span);
      }
    }
    return all;
  }

  std::optional<Problem> include(int all, const std::string& file) {
    const std::string name = shown(file);
    if (std::find(open_.begin(), open_.end(), file) != open_.end()) {
      std::string chain;
      for (const std::string& open : open_) chain += shown(open) + " > ";
      return Problem{"include-cycle", "the file includes itself: " + chain + name,
                     "remove one of these includes"};
    }
    if (open_.size() > max_include_depth) {
      return Problem{"include-depth",
                     "files include each other more than " + std::to_string(max_include_depth) +
                         " levels deep",
                     ""};
    }
    if (!files_.insert(file).second) return std::nullopt;  // its values are there already
    if (!around_.load) {
      return Problem{"include-refused", "include is supported only in files", ""};
    }
    const Surroundings::Loaded loaded = around_.load(file);
    if (!loaded.text) {
      return Problem{"include-missing", name + " cannot be included: " + loaded.why,
                     "the path is relative to the file that includes it"};
    }
    if (bytes_ + loaded.text->size() > max_yaml_bytes) {
      return Problem{"include-size", "together with " + name + " the files are larger than 1 MiB",
                     "is this the right file?"};
    }
    const int root = read(*loaded.text, file, nullptr);
    if (root < 0) {
      missing_ = true;  // the error has been reported
    } else if (tree_.node(root).kind != YamlNode::Kind::map) {
      missing_ = true;
      complain(wrong_type(tree_.node(root), "a map of sections"), "", tree_.node(root).span);
    } else {
      merge(all, root, "");
    }
    return std::nullopt;
  }

  void merge(int into, int from, const std::string& path) {
    for (const YamlEntry& later : std::vector<YamlEntry>(tree_.node(from).entries)) {
      if (YamlEntry* earlier = tree_.find(into, later.key)) {
        merge_entry(*earlier, later, join(path, later.key));
      } else {
        tree_.node(into).entries.push_back(later);
      }
    }
  }

  void merge_entry(YamlEntry& earlier, const YamlEntry& later, const std::string& path) {
    const auto kind = [&](const YamlEntry& entry) { return tree_.node(entry.value).kind; };
    const bool first_is_map = kind(earlier) == YamlNode::Kind::map;
    const bool second_is_map = kind(later) == YamlNode::Kind::map;
    if (const int tag = tree_.node(later.value).overrides; tag >= 0) {
      used_.insert(tag);
      tree_.note_replaced(path, earlier.value);
      earlier = later;
    } else if (first_is_map && second_is_map) {
      if (tree_.nodes.size() > most_nodes) return too_many(later.key_span);
      // A copy, since an alias may show the same map elsewhere.
      const int copy = tree_.add_node(YamlNode(tree_.node(earlier.value)));
      earlier.value = copy;
      merge(copy, later.value, path);
    } else if (kind(later) == YamlNode::Kind::null && first_is_map) {
      return;  // a section without keys
    } else if (kind(earlier) == YamlNode::Kind::null && second_is_map) {
      earlier = later;
    } else {
      given_twice(earlier, later, path);
      if (second_is_map) earlier = later;  // keep a section, so no second error follows
    }
  }

  void given_twice(const YamlEntry& earlier, const YamlEntry& later, const std::string& path) {
    const std::string first = tree_.place(earlier.key_span).position();
    const std::string second = tree_.place(later.key_span).position();
    complain({"given-twice", "given twice: first in " + first + ", again in " + second,
              "remove one of the two, or write `" + shown(later.key) +
                  ": !override ...` for the value that wins"},
             path, later.key_span);
  }

  void too_many(const Span& where) {
    if (std::exchange(full_, true)) return;
    complain({"too-large", "the files together have too many keys", ""}, "", where);
  }

  YamlTree& tree_;
  const Surroundings& around_;
  Diagnostics& diagnostics_;
  std::vector<std::string> open_;  // the files that lead here
  std::set<std::string> files_;    // included so far
  std::set<int> visited_;
  std::map<std::string, Place> included_by_;
  Spellings spellings_;
  std::set<int> used_;  // !override tags that overrode a value
  std::size_t bytes_ = 0;
  bool missing_ = false;
  bool full_ = false;
};

/// Puts the entries of `from`, which is one --set option, into the map: values are replaced, the
/// maps on the path to them are merged.
void override_entries(YamlTree& tree, int into, int from, const std::string& path) {
  for (const YamlEntry& given : std::vector<YamlEntry>(tree.node(from).entries)) {
    const std::string at = join(path, given.key);
    YamlEntry* found = tree.find(into, given.key);
    if (found == nullptr) {
      tree.node(into).entries.push_back(given);
      continue;
    }
    const auto is_map = [&](int node) { return tree.node(node).kind == YamlNode::Kind::map; };
    if (is_map(found->value) && is_map(given.value) && tree.node(given.value).overrides < 0) {
      const int copy = tree.add_node(YamlNode(tree.node(found->value)));
      found->value = copy;
      override_entries(tree, copy, given.value, at);
    } else {
      tree.note_replaced(at, found->value);
      *found = given;
    }
  }
}

}  // namespace

Composed compose(YamlTree& tree, std::string_view text, const std::string& name,
                 const Surroundings& around, Diagnostics& diagnostics) {
  Composed result;
  Composer composer(tree, around, diagnostics);
  result.root = composer.read(text, name, &result.text);
  result.missing = composer.missing();
  result.included_by = composer.included_by();
  result.spellings = composer.spellings();
  if (result.root >= 0) composer.check_overrides();
  return result;
}

Spellings override_values(YamlTree& tree, int root, const std::vector<std::string>& set_options,
                          Diagnostics& diagnostics) {
  Spellings spellings;
  for (const std::string& option : set_options) {
    YamlNode empty;
    empty.kind = YamlNode::Kind::map;
    const int one = tree.add_node(std::move(empty));
    apply_set_option(tree, one, option, diagnostics);
    if (tree.node(one).entries.empty()) continue;
    // The option's value replaces a whole map; the maps along its path are merged.
    const std::string path = option.substr(0, option.find('='));
    int value = one;
    for (auto steps = std::count(path.begin(), path.end(), '.') + 1; steps > 0; --steps) {
      value = tree.node(value).entries.front().value;
    }
    tree.node(value).overrides = static_cast<int>(tree.override_tags.size());
    tree.override_tags.push_back({path, tree.node(value).span});
    spellings.insert_or_assign(path, path);  // the option's own spelling counts from here on
    Spellings of_option = carry_router(tree, one, diagnostics);
    of_option.merge(apply_upstream(tree, one, diagnostics));
    for (auto& [key, written] : of_option) {
      spellings.insert_or_assign(key, written);
    }
    override_entries(tree, root, one, "");
  }
  return spellings;
}

}  // namespace trainctl
