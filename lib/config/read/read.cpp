#include "config/read/read.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/devices/figures.h"
#include "config/mindformers/mindformers_file.h"
#include "config/read/section_reader.h"
#include "config/report/diagnostics.h"
#include "config/schema/fields.h"
#include "config/schema/known_paths.h"
#include "config/schema/list_values.h"
#include "config/schema/optimizers.h"
#include "config/schema/values.h"
#include "config/upstream/upstream.h"
#include "config/yaml/tree.h"

namespace trainctl {

// `--set a.b=c`: adds a value to the document before it is read, so that the same checks apply.

namespace {

struct Step {
  std::string key;
  Span span;
};

std::optional<std::vector<Step>> split_path(const std::string& argument, std::size_t end,
                                            TextMarks& marks, int text) {
  std::vector<Step> steps;
  for (std::size_t start = 0; start <= end;) {
    const std::size_t dot = std::min(argument.find('.', start), end);
    if (dot == start) return std::nullopt;
    Span span = marks.span(start, dot - start);
    span.text = text;
    steps.push_back({argument.substr(start, dot - start), span});
    start = dot + 1;
  }
  return steps;
}

/// The node of the option's value, or -1 with an error added.
int value_node(YamlTree& tree, const std::string& argument, std::size_t equals, int text,
               Diagnostics& diagnostics) {
  const std::size_t start = argument.find_first_not_of(' ', equals + 1);
  YamlNode node;
  TextMarks marks(argument);
  if (start == std::string::npos) {
    node.span = marks.span(equals, 1);
    node.span.text = text;
    return tree.add_node(std::move(node));
  }
  const std::string value = argument.substr(start, argument.find_last_not_of(' ') + 1 - start);
  if (std::string("[{\"'").find(value[0]) != std::string::npos) {
    // Blanks in place of the path keep the columns correct.
    return parse_yaml(tree, std::string(start, ' ') + value, text, diagnostics);
  }
  node.span = marks.span(start, value.size());
  node.span.text = text;
  if (value != "null" && value != "~") {
    node.kind = YamlNode::Kind::scalar;
    node.scalar = value;
  }
  return tree.add_node(std::move(node));
}

/// The map below `step`: created if missing, and copied, since an alias may share it.
int enter(YamlTree& tree, int map, const Step& step) {
  YamlNode child;
  child.span = step.span;
  if (const YamlEntry* entry = tree.find(map, step.key)) {
    if (tree.node(entry->value).kind == YamlNode::Kind::map) child = tree.node(entry->value);
  }
  child.kind = YamlNode::Kind::map;
  const int made = tree.add_node(std::move(child));
  if (YamlEntry* entry = tree.find(map, step.key)) {
    entry->value = made;
  } else {
    tree.node(map).entries.push_back({step.key, step.span, made});
  }
  return made;
}

/// Applies one argument to the map `root`. A value in brackets, braces or quotes is parsed as YAML;
/// any other value is taken literally, so that spaces, # and : need no quotes.
void apply_set_option(YamlTree& tree, int root, const std::string& argument,
                      Diagnostics& diagnostics) {
  const int text = tree.add_text(Place::Origin::set_option, argument);
  const Place source = tree.texts.back();
  if (!check_text(argument, source, diagnostics)) return;
  TextMarks marks(argument);
  const std::size_t equals = argument.find('=');
  const auto steps =
      equals == std::string::npos ? std::nullopt : split_path(argument, equals, marks, text);
  if (!steps) {
    diagnostics.add(
        {Severity::error, "bad-set", "",
         "--set expects PATH=VALUE with a dotted path, found \"" + shown(argument) + "\"",
         "for example --set train.steps=100", tree.place({text, 1, 1, 2})});
    return;
  }
  const int value = value_node(tree, argument, equals, text, diagnostics);
  if (value < 0) return;
  int map = root;
  for (std::size_t i = 0; i + 1 < steps->size(); ++i) map = enter(tree, map, (*steps)[i]);
  const Step& last = steps->back();
  tree.remove(map, last.key);
  tree.node(map).entries.push_back({last.key, last.span, value});
}

}  // namespace

// Merges the file, its includes and --set options into one document. Variables are replaced and
// upstream spellings rewritten in each part first, so that a key given twice is found in any
// spelling.

namespace {

inline constexpr std::size_t max_include_depth = 16;

constexpr std::size_t max_nodes = 4 * max_yaml_nodes;  // limit, since merging copies maps

std::string join(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

class Composer {
 public:
  Composer(YamlTree& tree, const Surroundings& around, Diagnostics& diagnostics)
      : tree_(tree), around_(around), diagnostics_(diagnostics) {}

  /// The root of a file merged with all its includes, or -1 if the file is not valid YAML. Stores
  /// the normalised text of the file itself in `kept`, unless that is null.
  int read(std::string_view given, const std::string& name, std::string* kept) {
    const std::string text = normalise_text(given.substr(0, max_yaml_bytes + 4));
    if (kept != nullptr) *kept = text;
    bytes_ += text.size();
    const int index = tree_.add_text(Place::Origin::file, name);
    const Place source = tree_.texts.back();
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

  /// Warns about each !override that overrides no value.
  void check_overrides() {
    for (std::size_t i = 0; i < tree_.override_tags.size(); ++i) {
      if (used_.contains(static_cast<int>(i))) continue;
      const YamlEntry& tag = tree_.override_tags[i];
      diagnostics_.add({Severity::warning, "nothing-overridden", tag.key,
                        "!override has no effect: no included file gives this value",
                        "remove the tag", tree_.place(tag.key_span)});
    }
  }

  /// Whether an included file could not be read, so that keys may seem to be missing.
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
    tree_.remove(root, "include");
    return paths;
  }

  /// Marks all values inside an overriding map, since its entries may be merged one by one.
  void spread_overrides(int map, int tag) {
    for (const YamlEntry& entry : std::vector<YamlEntry>(tree_.node(map).entries)) {
      YamlNode& value = tree_.node(entry.value);
      if (tag >= 0 && value.overrides < 0) value.overrides = tag;
      if (visited_.insert(entry.value).second) spread_overrides(entry.value, value.overrides);
    }
  }

  int read_included(const std::vector<int>& paths, const std::string& name) {
    const int all = tree_.add_map({}, {0, 1, 1, 2});
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
      return Problem{
          "include-depth",
          formatted("files include each other more than {} levels deep", max_include_depth), ""};
    }
    if (!files_.insert(file).second) return std::nullopt;  // its values are merged already
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
      if (tree_.nodes.size() > max_nodes) return too_many(later.key_span);
      // A copy, since an alias may share the map.
      const int copy = tree_.add_node(YamlNode(tree_.node(earlier.value)));
      earlier.value = copy;
      merge(copy, later.value, path);
    } else if (kind(later) == YamlNode::Kind::null && first_is_map) {
      return;  // a section without keys
    } else if (kind(earlier) == YamlNode::Kind::null && second_is_map) {
      earlier = later;
    } else {
      given_twice(earlier, later, path);
      if (second_is_map) earlier = later;  // keeps a section to avoid a second error
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
  std::vector<std::string> open_;  // chain of files that include the present one
  std::set<std::string> files_;    // all files included so far
  std::set<int> visited_;
  std::map<std::string, Place> included_by_;
  Spellings spellings_;
  std::set<int> used_;  // !override tags that overrode a value
  std::size_t bytes_ = 0;
  bool missing_ = false;
  bool full_ = false;
};

/// Merges the entries of `from`, which holds one --set option, into the map `into`: maps along the
/// option's path are merged, its value replaces the old one.
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

/// Replaces values of the document by those of --set options; the last option wins. First rewrites
/// upstream spellings in the options. `root` is a map. Returns the spellings of the options; an
/// option in our spelling maps its path to itself.
Spellings override_values(YamlTree& tree, int root, const std::vector<std::string>& set_options,
                          Diagnostics& diagnostics) {
  Spellings spellings;
  for (const std::string& option : set_options) {
    const int one = tree.add_map();
    apply_set_option(tree, one, option, diagnostics);
    if (tree.node(one).entries.empty()) continue;
    // The option's value replaces a whole map; maps along its path are merged.
    const std::string path = option.substr(0, option.find('='));
    int value = one;
    for (auto steps = std::count(path.begin(), path.end(), '.') + 1; steps > 0; --steps) {
      value = tree.node(value).entries.front().value;
    }
    tree.node(value).overrides = static_cast<int>(tree.override_tags.size());
    tree.override_tags.push_back({path, tree.node(value).span});
    spellings.insert_or_assign(path, path);  // the option's own spelling replaces that of the file
    Spellings of_option = carry_router(tree, one, diagnostics);
    of_option.merge(apply_upstream(tree, one, diagnostics));
    for (auto& [key, written] : of_option) {
      spellings.insert_or_assign(key, written);
    }
    override_entries(tree, root, one, "");
  }
  return spellings;
}

constexpr std::size_t max_diagnostics = 200;

/// Makes messages use the user's spelling of keys: for the whole path, and for the last keys of a
/// path if they are unique. A single word such as "layout" may be an ordinary word, so it is kept.
void call_as_written(const Spellings& spellings, Diagnostics& diagnostics) {
  for (const auto& [path, spelling] : spellings) {
    if (spelling == path) continue;
    diagnostics.call(path, spelling);
    const std::string last = last_key(spelling);
    for (std::size_t dot = path.find('.'); dot != std::string::npos;
         dot = path.find('.', dot + 1)) {
      const std::string end = path.substr(dot + 1);
      const bool is_word = end.find_first_of("._") == std::string::npos;
      if (!is_word && is_unique_key(end)) diagnostics.call(end, last);
    }
  }
}

/// Sets keys that were not given to the optimizer's own defaults.
void fill_optimizer(const SourceMap& sources, OptimizerConfig& optimizer) {
  for (const OptimizerKey& key : row_of(optimizer.type).keys) {
    const bool given = sources.places().contains(formatted("optimizer.{}", key.name));
    if (key.usual && !given) optimizer.*key.value = *key.usual;
  }
}

/// Sets parallel.device to auto for a file that names a GPU in cluster.device.
void choose_device(const SourceMap& sources, Config& config) {
  const bool given = sources.places().contains("parallel.device");
  if (!given && names_gpu(config.cluster)) config.parallel.device = "auto";
}

void read_root(Reading& reading, int root, const std::vector<std::string>& set_options,
               const std::string& text, const Surroundings& around) {
  YamlTree& tree = reading.tree;
  const YamlNode given = tree.node(root);
  if (given.kind != YamlNode::Kind::map) {
    Problem problem = wrong_type(given, "a map of sections");
    const std::size_t behind = missing_space(text);
    if (given.kind == YamlNode::Kind::scalar && behind > 0) {
      problem.help = "put a space after the colon: `" + text.substr(0, behind) + " ...`";
    }
    reading.report(std::move(problem), "", tree.place(given.span));
    return;
  }
  for (auto& [path, spelling] :
       override_values(tree, root, set_options, reading.result.diagnostics)) {
    reading.spellings.insert_or_assign(path, spelling);
  }
  call_as_written(reading.spellings, reading.result.diagnostics);
  fill_model(reading, root, around);
  fill_router(tree, root, reading.spellings, reading.result.diagnostics);
  const Place file = tree.texts[0];
  read_section(reading, root, "", file, reading.result.config);
  fill_optimizer(reading.result.sources, reading.result.config.optimizer);
  check_model_against_file(reading);
  load_figures(reading.result.config.cluster, around);
  choose_device(reading.result.sources, reading.result.config);
  reading.result.complete = reading.model_complete;
}

std::string written(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null: return "null";
    case YamlNode::Kind::map: return "a map";
    case YamlNode::Kind::sequence: return "a list";
    case YamlNode::Kind::scalar: break;
  }
  return shown(node.scalar);
}

void keep_replaced(const YamlTree& tree, ReadResult& result) {
  for (const YamlEntry& lost : tree.replaced) {
    const YamlNode& node = tree.node(lost.value);
    auto& list = result.replaced[lost.key];
    list.insert(list.begin(), {written(node), tree.place(node.span)});
  }
}

/// If a variable has no value, keeps only the error about it: further errors at the same value
/// follow from it and supply only the path.
void drop_consequences(Diagnostics& diagnostics) {
  const auto is_cause = [](const Diagnostic& d) {
    return d.code == "unset-variable" || d.code == "bad-variable";
  };
  std::vector<Diagnostic> causes;
  for (const Diagnostic& diagnostic : diagnostics.list()) {
    if (is_cause(diagnostic)) causes.push_back(diagnostic);
  }
  if (causes.empty()) return;
  const auto cause_of = [&](const Diagnostic& d) -> Diagnostic* {
    for (Diagnostic& cause : causes) {
      const bool same = d.place.position() == cause.place.position();
      if (same && d.place.origin == cause.place.origin) return &cause;
    }
    return nullptr;
  };
  diagnostics.drop_if([&](const Diagnostic& diagnostic) {
    Diagnostic* cause = cause_of(diagnostic);
    if (cause != nullptr && !diagnostic.path.empty()) cause->path = diagnostic.path;
    return cause != nullptr;
  });
  for (Diagnostic& cause : causes) diagnostics.add(std::move(cause));
}

/// Drops errors about missing keys that were given under another name; no rule checks their values.
void drop_missing(const std::vector<std::string>& named_otherwise, Diagnostics& diagnostics) {
  diagnostics.forgive_if([&](const Diagnostic& missing) {
    return missing.code == "missing-key" &&
           std::ranges::find(named_otherwise, missing.path) != named_otherwise.end();
  });
}

}  // namespace

ReadResult read_config_text(std::string_view text, const std::string& name,
                            const std::vector<std::string>& set_options,
                            const Surroundings& around) {
  ReadResult result;
  YamlTree tree;
  Reading reading{tree, result};
  Composer composer(tree, around, result.diagnostics);
  std::string kept;
  const int root = composer.read(text, name, &kept);
  result.included_by = composer.included_by();
  reading.spellings = composer.spellings();
  if (root >= 0) {
    composer.check_overrides();
    read_root(reading, root, set_options, kept, around);
  }
  keep_replaced(tree, result);
  if (composer.missing()) {
    result.complete = false;
    result.diagnostics.drop_if([](const Diagnostic& d) { return d.code == "missing-key"; });
  }
  drop_consequences(result.diagnostics);
  drop_missing(reading.named_otherwise, result.diagnostics);
  result.diagnostics.sort();
  result.diagnostics.keep_first(max_diagnostics);
  return result;
}

Surroundings::Loaded load_text(const std::string& path) {
  try {
    const FileKind kind = kind_of_file(path);
    if (kind == FileKind::none) return {std::nullopt, "no such file"};
    if (kind == FileKind::folder) return {std::nullopt, "expected a YAML file, found a directory"};
    return {read_beginning(path, static_cast<std::int64_t>(max_yaml_bytes + 4)), ""};
  } catch (const Error& error) {
    if (error.code() == ExitCode::io) throw;  // whether the file exists is unknown
    return {std::nullopt, error.what()};
  }
}

ReadResult read_config(const std::filesystem::path& file,
                       const std::vector<std::string>& set_options) {
  const std::string name = file.string();
  const Surroundings::Loaded loaded = load_text(name);
  if (!loaded.text) throw Error(ExitCode::missing_input, name + ": " + loaded.why);
  return read_config_text(*loaded.text, name, set_options, {.load = load_text, .variable = {}});
}

namespace {

/// Writes every value as a line of YAML. Indentation is two blanks for each dot of its path.
struct Writer {
  std::string& out;
  const SourceMap* sources;
  bool of_list = false;  // for a list: keys that are not given are omitted

  template <class Value>
  void operator()(const std::string& path, const Value& value, const Field& field) {
    if constexpr (std::is_same_v<Value, std::int64_t>) {
      if (value == 0 && !field.given_by.empty()) return given_otherwise(path, field);
    }
    out += formatted("{}{}: {}", indent(path), field.key, write_value(value));
    if (sources != nullptr) out += "  # " + origin(path);
    out += "\n";
  }
  template <class Value>
  void operator()(const std::string& path, const std::optional<Value>& value, const Field& field) {
    if (value) {
      (*this)(path, *value, field);
    } else if (!of_list) {
      out += formatted("{}# {}: not given; {}\n", indent(path), field.key, field.unset_note);
    }
  }
  void operator()(const std::string&, std::nullopt_t, const Field&) {}
  template <ListedSection Item>
  void operator()(const std::string& path, const std::vector<Item>& items, const Field& field) {
    out += formatted("{}{}:{}\n", indent(path), field.key, items.empty() ? " []" : "");
    for (std::size_t i = 0; i < items.size(); ++i) {
      std::string item;
      visit_values(items[i], Writer{item, sources, true}, formatted("{}.{}.", path, i));
      item[indent(path).size() + 2] = '-';
      out += item;
    }
  }
  void section(const std::string& path, const Field& field) {
    out += formatted("{}{}:\n", indent(path), field.key);
  }

 private:
  static std::string indent(const std::string& path) {
    return std::string(2 * static_cast<std::size_t>(std::ranges::count(path, '.')), ' ');
  }

  /// Writes a comment for a required value that other keys determine.
  void given_otherwise(const std::string& path, const Field& field) {
    const bool known = sources != nullptr && sources->places().contains(path);
    out += formatted("{}# {}: {}\n", indent(path), field.key, known ? origin(path) : "not given");
  }

  /// The source of a value. In a list item that is only a path, the value has the item's place.
  std::string origin(const std::string& path) const {
    const auto& places = sources->places();
    auto found = places.find(path);
    if (found == places.end() && path.ends_with(".path")) {
      found = places.find(path.substr(0, path.size() - 5));
    }
    return found == places.end() ? "default" : printable(found->second.to_string());
  }
};

}  // namespace

Config config_as_given(const ReadResult& read) {
  Config config = read.config;
  if (!read.given) return config;
  config.train = read.given->train;
  config.lr_schedule = read.given->lr_schedule;
  return config;
}

std::string dump_config(const Config& config, const SourceMap* sources) {
  std::string out;
  visit_values(config, Writer{out, sources});
  return out;
}

}  // namespace trainctl
