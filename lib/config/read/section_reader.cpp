#include "config/read/section_reader.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "config/read/read.h"
#include "config/schema/fields.h"
#include "config/schema/known_paths.h"
#include "config/schema/list_values.h"
#include "config/schema/presets.h"
#include "config/support/standing.h"
#include "config/upstream/hugging_face.h"
#include "config/upstream/other_keys.h"
#include "config/upstream/upstream.h"
#include "config/yaml/tree.h"

namespace trainctl {
namespace {

/// A visitor that reads a node into the field at a path.
struct ValueSetter {
  const YamlTree& tree;
  int node = 0;
  std::string_view path;  // rest of the path below the present section
  std::optional<Problem> problem = Problem{"unknown-key", "", ""};

  template <class Value>
  void operator()(Value& value, const Field& field) {
    if (path != field.key) return;
    problem =
        field.is_internal ? Problem{"internal-key", "", ""} : read_field(tree, node, field, value);
  }
  void operator()(std::vector<DataSource>& sources, const Field& field) {
    if (path != field.key) return;
    const YamlNode& given = tree.node(node);
    if (given.kind == YamlNode::Kind::sequence) {
      problem.reset();
    } else if (!(problem = read_value(given, Field{}.from(1), sources.emplace_back().path))) {
      sources = {sources.back()};
    }
  }
  void operator()(std::vector<LayerEntry>&, const Field& field) {
    if (path != field.key) return;
    const YamlNode& given = tree.node(node);
    problem.reset();
    if (given.kind == YamlNode::Kind::scalar || given.kind == YamlNode::Kind::map) {
      problem = wrong_type(given, "a list of kinds of layers");
    }
  }
  template <class Section>
  void section(Section& value, const Field& field) {
    if (path == field.key) {
      const YamlNode::Kind kind = tree.node(node).kind;
      problem.reset();
      if (kind != YamlNode::Kind::map && kind != YamlNode::Kind::null) {
        problem = wrong_type(tree.node(node), "a map of keys");
      }
      return;
    }
    const std::size_t dot = path.find('.');
    if (dot == std::string_view::npos || path.substr(0, dot) != field.key) return;
    ValueSetter inner{tree, node, path.substr(dot + 1)};
    fields(inner, value);
    problem = std::move(inner.problem);
  }
};

std::optional<Problem> set(Config& config, const std::string& path, const YamlTree& tree,
                           int node) {
  ValueSetter setter{tree, node, path};
  fields(setter, config);
  return std::move(setter.problem);
}

}  // namespace

std::optional<Problem> problem_at(const std::string& path, const YamlTree& tree, int node) {
  Config scratch;
  return set(scratch, path, tree, node);
}

std::optional<Problem> set_value(Config& config, const std::string& path, const std::string& text) {
  YamlTree tree;
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.scalar = text;
  const int index = tree.add_node(std::move(node));
  return set(config, path, tree, index);
}

namespace {

/// An unknown key of a section ("" for the top level), and the `known` keys of the section.
struct UnknownKey {
  const YamlTree& tree;
  const std::string& section;
  const YamlEntry& entry;
  const std::vector<std::string>& known;
};

struct UnknownKeyHelp {
  std::string text;                // such as "write train.steps: 10"; "" if there is no guess
  std::vector<std::string> paths;  // keys of ours that it replaces: not reported as missing
};

constexpr std::size_t max_inner_hints = 6;  // for the keys of an unknown section

std::string path_in(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
}

bool takes(const YamlTree& tree, const std::string& path, int node) {
  return !problem_at(path, tree, node);
}

/// Whether each key of the hint accepts its value.
bool fits(const Hint& hint) {
  return std::ranges::all_of(hint.values, [](const HintValue& value) {
    Config scratch;
    return value.text.empty() || value.text.starts_with('[') ||
           !set_value(scratch, value.path, value.text);
  });
}

std::string text_of(const Hint& hint) { return fits(hint) ? hint.text : hint.without_values; }

/// A scalar unchanged, a list as [1, 2], "" for a map or null.
std::string value_text(const YamlTree& tree, int value) {
  const YamlNode& node = tree.node(value);
  if (node.kind == YamlNode::Kind::scalar) return node.scalar;
  return node.kind == YamlNode::Kind::sequence ? flow_text(tree, value) : "";
}

/// The first hint whose keys accept their values, or "".
std::string fitting_hint(const std::string& path, const std::string& value, bool exact) {
  const std::vector<Hint> hints = hints_for_value(path, value, exact);
  const auto found = std::ranges::find_if(hints, fits);
  return found == hints.end() ? "" : found->text;
}

class KeyGuess {
 public:
  explicit KeyGuess(const UnknownKey& unknown) : unknown_(unknown), entry_(unknown.entry) {}

  UnknownKeyHelp run() {
    const bool said = dotted() || section_renamed() || hint_here() || elsewhere() ||
                      inner_hints(false) || hint_of_key() || of_runner() || inner_hints(true) ||
                      nearby() || upstream_name() || say(where_keys_are());
    return said ? std::move(result_) : UnknownKeyHelp{};
  }

 private:
  bool say(std::string text, std::vector<std::string> paths = {}) {
    if (text.empty()) return false;
    result_.text = std::move(text);
    result_.paths.insert(result_.paths.end(), paths.begin(), paths.end());
    return true;
  }

  /// Help for a whole path written as a key of the top level.
  bool dotted() {
    const std::string& key = entry_.key;
    const KnownPath* known = find_known_path(key);
    const std::size_t dot = key.rfind('.');
    if (known == nullptr || known->is_section || dot == std::string::npos) return false;
    return say("write " + key.substr(dot + 1) + " inside " + key.substr(0, dot), {key});
  }

  /// Help for a section with a wrong name but keys of ours: lr_scheduler: {warmup_steps: 2}.
  bool section_renamed() {
    const YamlNode& value = unknown_.tree.node(entry_.value);
    if (value.kind != YamlNode::Kind::map || value.entries.empty()) return false;
    const std::string near = nearest(entry_.key, sections());
    if (near.empty()) return false;
    std::vector<std::string> paths;
    for (const YamlEntry& inner : value.entries) {
      std::string path = path_in(unknown_.section, near) + "." + inner.key;
      if (takes(unknown_.tree, path, inner.value)) paths.push_back(std::move(path));
    }
    if (2 * paths.size() <= value.entries.size()) return false;
    return say("did you mean " + near + "?", paths);
  }

  std::vector<std::string> sections() const {
    std::vector<std::string> found;
    for (const std::string& key : unknown_.known) {
      const KnownPath* known = find_known_path(path_in(unknown_.section, key));
      if (known != nullptr && known->is_section) found.push_back(key);
    }
    return found;
  }

  bool take(const Hint& hint) {
    std::vector<std::string> paths;
    for (const HintValue& value : hint.values) paths.push_back(value.path);
    return say(text_of(hint), paths);
  }

  bool hint_here() {
    return !unknown_.section.empty() &&
           take(hint_for(unknown_.section + "." + entry_.key, text_in(entry_)));
  }
  /// Help from another project's key, or from a similar key of ours if the value does not fit.
  bool hint_of_key() {
    const Hint hint = hint_for(entry_.key, text_in(entry_));
    return (!fits(hint) && nearby()) || take(hint);
  }

  std::string text_in(const YamlEntry& entry) const {
    return value_text(unknown_.tree, entry.value);
  }

  std::string where_keys_are() const {
    return unknown_.section.empty()
               ? "remove it: the sections are in `trainctl schema --format markdown`"
               : "remove it: `trainctl explain " + unknown_.section + "` lists the keys";
  }

  /// Help for a key that exists in exactly one other section. Ignores deeper keys
  /// (parallel.pipeline.dtype) if other projects use the word for something else.
  bool elsewhere() {
    std::vector<std::string> found;
    for (const std::string& path : value_paths()) {
      const bool deep = std::ranges::count(path, '.') > 1;
      if (last_key(path) == entry_.key && !(deep && !hint_for(entry_.key, "").text.empty()) &&
          takes(unknown_.tree, path, entry_.value)) {
        found.push_back(path);
      }
    }
    if (found.empty() || found.size() > 2) return false;
    return say(
        "did you mean " + found.front() + (found.size() > 1 ? " or " + found.back() : "") + "?",
        found);
  }

  /// Hints for the keys of an unknown section that some project has in this section, or with
  /// `anywhere`, in any section.
  bool inner_hints(bool anywhere) {
    if (!unknown_.section.empty()) return false;
    std::string text;
    std::vector<std::string> paths;
    std::size_t count = 0;
    for (const YamlEntry& inner : unknown_.tree.node(entry_.value).entries) {
      Hint one = hint_for(entry_.key + "." + inner.key, text_in(inner));
      if (one.text.empty() && anywhere) one = hint_for(inner.key, text_in(inner));
      if (one.text.empty() || ++count > max_inner_hints) continue;
      text += (text.empty() ? "" : "; ") + text_of(one);
      for (const HintValue& value : one.values) paths.push_back(value.path);
    }
    return say(text, paths);
  }

  bool nearby() {
    std::vector<std::string> fitting;
    for (const std::string& key : unknown_.known) {
      if (takes(unknown_.tree, path_in(unknown_.section, key), entry_.value))
        fitting.push_back(key);
    }
    const std::string near = nearest(entry_.key, fitting);
    if (near.empty()) return false;
    return say("did you mean " + near + "?", {path_in(unknown_.section, near)});
  }

  /// Help for an upstream key in the wrong section, or a misspelt one.
  bool upstream_name() {
    std::vector<std::string> names;
    for (const UpstreamKey& row : all_upstream_keys()) {
      if (row.key == entry_.key && row.section != unknown_.section) {
        return say(formatted("write {} inside {}", entry_.key, row.section));
      }
      const bool fits =
          row.conversion != "same" || takes(unknown_.tree, std::string(row.path), entry_.value);
      if (row.section == unknown_.section && fits) names.emplace_back(row.key);
    }
    const std::string near = nearest(entry_.key, names);
    return say(near.empty() ? "" : "did you mean " + near + "?");
  }

  bool of_runner() {
    const ForeignKey* foreign = find_foreign(unknown_.section, entry_.key);
    if (foreign == nullptr) return false;
    return say(foreign->answer == "idle" ? formatted("remove it: {}", foreign->instead)
                                         : help_of(*foreign));
  }

  /// All paths of values, without sections, in the order of the schema.
  static const std::vector<std::string>& value_paths() {
    static const std::vector<std::string> paths = [] {
      std::vector<std::string> found;
      for (const std::string& path : all_known_paths()) {
        if (!find_known_path(path)->is_section) found.push_back(path);
      }
      return found;
    }();
    return paths;
  }

  const UnknownKey& unknown_;
  const YamlEntry& entry_;
  UnknownKeyHelp result_;
};

/// Help for an unknown key; suggests only keys that accept the kind of value that was written.
UnknownKeyHelp help_for(const UnknownKey& unknown) { return KeyGuess(unknown).run(); }

}  // namespace

std::string help_for_section(const std::string& section, const YamlNode& value) {
  const bool is_word = value.kind == YamlNode::Kind::scalar;
  const std::string meant = is_word ? fitting_hint(section, value.scalar, false) : "";
  if (!meant.empty()) return meant;
  const Hint hint = is_word ? hint_for(section, value.scalar) : Hint{};
  return hint.text.starts_with("write ")
             ? text_of(hint)
             : "give it keys: `trainctl explain " + section + "` lists them";
}

std::string help_for_value(const YamlTree& tree, const std::string& path, int node,
                           std::string help) {
  if (tree.node(node).kind == YamlNode::Kind::null) return help;
  const std::string meant = fitting_hint(path, value_text(tree, node), !help.empty());
  return meant.empty() ? help : meant;
}

namespace {

constexpr std::size_t max_suggestions = 200;

}  // namespace

void Reading::report(Problem problem, const std::string& path, Place place) {
  result.diagnostics.add({Severity::error, std::move(problem.code), path,
                          std::move(problem.message), std::move(problem.help), std::move(place)});
}

void Reading::missing(const std::string& path, const Field& field, const Place& place) {
  if (!model_complete && path.starts_with("model.")) return;
  const std::string_view section = "model.";
  const bool preset_gives =
      path.starts_with(section) && path.find('.', section.size()) == std::string::npos;
  report({"missing-key", formatted("required key is missing ({})", field.meaning),
          "add " + path + (preset_gives ? ", or choose a model.preset" : "")},
         path, place);
}

bool SectionReader::is_given_otherwise(const Field& field) const {
  const auto has = [this](const std::string& key) {
    return reading_.tree.find(map_, key) != nullptr;
  };
  const std::vector<std::string> sets = split_words(field.given_by);
  return map_ >= 0 && std::any_of(sets.begin(), sets.end(), [&](const std::string& set) {
           const std::vector<std::string> keys = split_at(set, '+');
           return std::all_of(keys.begin(), keys.end(), has);
         });
}

const YamlEntry* SectionReader::find(const Field& field) {
  known_.emplace_back(field.key);
  const YamlEntry* entry = map_ < 0 ? nullptr : reading_.tree.find(map_, field.key);
  if (entry == nullptr && field.is_required && !is_given_otherwise(field)) {
    reading_.missing(path_of(field.key), field, place_);
  }
  return entry;
}

void SectionReader::operator()(std::vector<DataSource>& sources, const Field& field) {
  const YamlEntry* entry = find(field);
  if (entry == nullptr) return;
  const int index = entry->value;
  const YamlNode& node = reading_.tree.node(index);
  const std::string path = path_of(field.key);
  const auto is = [&](YamlNode::Kind kind) { return node.kind == kind; };
  if (is(YamlNode::Kind::null) || is(YamlNode::Kind::map)) {
    reading_.report(wrong_type(node, "a path, a list of paths, or a list of {path, weight}"), path,
                    place_of(node));
    return;
  }
  if (is(YamlNode::Kind::sequence) && node.items.empty()) {
    reading_.report({"out-of-range", "expected at least one path, found an empty list", ""}, path,
                    place_of(node));
    return;
  }
  reading_.result.sources.record(path, place_of(node));
  sources.clear();
  const std::vector<int> items =
      is(YamlNode::Kind::sequence) ? node.items : std::vector<int>{index};
  for (std::size_t i = 0; i < items.size(); ++i) {
    read_source(items[i], formatted("{}.{}", path, i), sources.emplace_back());
  }
}

void SectionReader::operator()(std::vector<LayerEntry>& entries, const Field& field) {
  const YamlEntry* entry = find(field);
  if (entry == nullptr) return;
  entries.clear();
  const YamlNode& node = reading_.tree.node(entry->value);
  const bool empty = node.kind == YamlNode::Kind::sequence && node.items.empty();
  if (node.kind == YamlNode::Kind::null || empty) return;
  const std::string path = path_of(field.key);
  if (node.kind != YamlNode::Kind::sequence) {
    reading_.report(
        wrong_type(node, "a list of kinds like [{name: dense, count: 3}, {name: wide}]"), path,
        place_of(node));
    return;
  }
  const std::vector<int> items = node.items;
  if (std::ssize(items) > max_kinds) {
    reading_.report(
        {"out-of-range",
         formatted("expected at most {} kinds of layers, found {}", max_kinds, items.size()),
         "give each kind once, with its count, or write layer_pattern"},
        path, place_of(node));
    return;
  }
  reading_.result.sources.record(path, place_of(node));
  for (std::size_t i = 0; i < items.size(); ++i) {
    read_section(reading_, items[i], formatted("{}.{}", path, i),
                 place_of(reading_.tree.node(items[i])), entries.emplace_back());
  }
}

void SectionReader::read_source(int item, const std::string& path, DataSource& source) {
  const YamlNode& node = reading_.tree.node(item);
  if (node.kind == YamlNode::Kind::map) {
    read_section(reading_, item, path, place_of(node), source);
    return;
  }
  if (auto problem = read_value(node, field("path", "").from(1), source.path)) {
    reading_.report(std::move(*problem), path, place_of(node));
  } else {
    reading_.result.sources.record(path, place_of(node));
  }
}

Problem SectionReader::unknown(const YamlEntry& entry) const {
  const std::string& key = entry.key;
  Problem problem{"unknown-key", "unknown key \"" + shown(key) + "\" in " + path_, ""};
  if (path_.empty()) problem.message = "unknown section \"" + shown(key) + "\"";
  const std::size_t behind = missing_space(key);
  if (behind > 0 && reading_.tree.node(entry.value).kind == YamlNode::Kind::null) {
    const OddSpace odd = odd_space(std::string_view(key).substr(behind));
    problem.message += "; missing space after the colon";
    if (odd.bytes > 0) problem.message += formatted(", where {} is", odd.name);
    problem.help =
        "write `" + key.substr(0, behind) + " " + shown(key.substr(behind + odd.bytes)) + "`";
    return problem;
  }
  if (reading_.result.diagnostics.list().size() > max_suggestions) return problem;
  const UnknownKeyHelp help =
      help_for({.tree = reading_.tree, .section = path_, .entry = entry, .known = known_});
  auto& named = reading_.named_otherwise;
  named.insert(named.end(), help.paths.begin(), help.paths.end());
  problem.help = help.text;
  return problem;
}

void SectionReader::refuse_internal(const YamlNode& node, const Field& field) {
  if (node.kind == YamlNode::Kind::null) return;
  reading_.report(
      {"internal-key", "trainctl sets this value itself; the configuration may only give null",
       "remove it"},
      path_of(field.key), place_of(node));
}

void SectionReader::finish() {
  if (map_ < 0) return;
  for (const YamlEntry& entry : reading_.tree.node(map_).entries) {
    if (std::find(known_.begin(), known_.end(), entry.key) != known_.end()) continue;
    reading_.report(unknown(entry), path_of(shown(entry.key)), reading_.tree.place(entry.key_span));
  }
}

namespace {

const Preset* find_preset(const std::string& name) {
  for (const Preset& preset : presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

Problem unknown_preset(const std::string& name) {
  const std::string near = nearest(name, preset_names());
  return {"bad-word",
          "unknown preset \"" + shown(name) + "\"; available: " + joined(preset_names(), ", "),
          near.empty() ? "" : "did you mean " + near + "?"};
}

/// The node of the model section; -1 unless it is a map.
int model_section(const YamlTree& tree, int root) {
  const YamlEntry* model = tree.find(root, "model");
  const bool is_map = model != nullptr && tree.node(model->value).kind == YamlNode::Kind::map;
  return is_map ? model->value : -1;
}

/// Parses the maps `model` and `moe`, which may be "", as a text with this origin, and adds their
/// keys to the sections model and moe. Returns the node that contains both.
int add_values(Reading& reading, int root, Place::Origin origin, const std::string& name,
               std::string_view model, std::string_view moe) {
  const int text = reading.tree.add_text(origin, name);
  const std::string yaml =
      formatted("model: {}{}", model, moe.empty() ? std::string() : formatted("\nmoe: {}", moe));
  const int values = parse_yaml(reading.tree, yaml, text, reading.result.diagnostics);
  if (values >= 0) reading.tree.fill_in(root, values, "");
  return values;
}

void apply_preset(Reading& reading, int root, const YamlNode& given) {
  const Preset* preset = find_preset(given.scalar);
  reading.model_complete = preset != nullptr;
  if (preset != nullptr) {
    add_values(reading, root, Place::Origin::preset, std::string(preset->name), preset->model,
               preset->moe);
  } else if (given.kind == YamlNode::Kind::scalar && !given.scalar.empty()) {
    reading.report(unknown_preset(given.scalar), "model.preset", reading.tree.place(given.span));
  }
}

/// Whether a key of the sections model and moe describes the training, not the network.
bool is_of_training(const std::string& path) {
  static const std::vector<std::string> keys = split_words(
      "model.seq_length|model.init_method_std|model.hidden_dropout|model.attention_dropout|"
      "model.embedding_dropout|model.make_vocab_size_divisible_by|"
      "model.perform_initialization|model.use_cpu_initialization|model.use_te_rng_tracker|"
      "model.cross_entropy_loss_fusion|model.cross_entropy_fusion_impl|moe.capacity_factor|"
      "moe.overflow|moe.capacity_group_size|moe.expert_group|moe.router_choice|"
      "moe.balance_counts|moe.router_bias_update_rate|moe.router_load_balancing_type|"
      "moe.aux_loss_factor|moe.z_loss_factor|moe.expert_group_size|moe.group_wise_a2a|"
      "moe.comp_comm_parallel|moe.comp_comm_parallel_degree|moe.overlap_expert_parallel_comm|"
      "moe.extended_tp");
  return std::ranges::find(keys, path) != keys.end();
}

/// Removes the keys that do not describe the network from a section of a run's configuration.
void keep_network(YamlTree& tree, const YamlEntry& section) {
  std::erase_if(tree.node(section.value).entries, [&](const YamlEntry& entry) {
    const bool of_training = is_of_training(section.key + "." + entry.key);
    return entry.key == "from" || entry.key == "preset" ||
           (of_training && entry.key != "seq_length");
  });
}

/// Adds the sections model and moe of a run's resolved configuration. Returns the node that
/// contains both; -1 if there is no model.
int add_values_of_run(Reading& reading, int root, const std::string& name,
                      const std::string& yaml) {
  YamlTree& tree = reading.tree;
  const int text = tree.add_text(Place::Origin::model_files, name);
  const int values = parse_yaml(tree, yaml, text, reading.result.diagnostics);
  if (values < 0) return -1;
  std::erase_if(tree.node(values).entries, [&](const YamlEntry& entry) {
    return (entry.key != "model" && entry.key != "moe") ||
           tree.node(entry.value).kind != YamlNode::Kind::map;
  });
  const YamlEntry* section = tree.find(values, "model");
  if (section == nullptr) return -1;
  const int model = section->value;
  for (const YamlEntry& entry : tree.node(values).entries) keep_network(tree, entry);
  // If the run did not give the number of positions, it is its sequence length.
  const YamlEntry* length = tree.find(model, "seq_length");
  if (length != nullptr && tree.find(model, "max_position_embeddings") == nullptr) {
    const YamlEntry positions{"max_position_embeddings", length->key_span, length->value};
    tree.node(model).entries.push_back(positions);
  }
  tree.fill_in(root, values, "");
  return values;
}

void apply_from(Reading& reading, int root, const YamlNode& given, const Surroundings& around) {
  if (given.kind != YamlNode::Kind::scalar || given.scalar.empty()) return;
  reading.model_complete = false;  // until the values have been added
  const auto refuse = [&](const std::string& message, const std::string& help) {
    reading.report({"model-directory", message, help}, "model.from",
                   reading.tree.place(given.span));
  };
  const auto take = [&](const std::string& file, int values) {
    reading.model_file = file;
    reading.model_values = values;
    reading.model_complete = values >= 0;
  };
  if (!around.load) return refuse("model.from is supported only in files", "");
  const std::filesystem::path directory(given.scalar);
  const std::string file = (directory / "config.json").string();
  const Surroundings::Loaded loaded = around.load(file);
  if (!loaded.text) {
    const std::string own = (directory / "config.yaml").string();
    const Surroundings::Loaded run = around.load(own);
    const int values = run.text ? add_values_of_run(reading, root, own, *run.text) : -1;
    if (values >= 0) return take(own, values);
    return refuse(
        shown(file) + ": " + loaded.why,
        "model.from is a Hugging Face directory, with config.json and safetensors files, or the "
        "directory of a run or a checkpoint; a relative path starts in the working directory");
  }
  const HuggingFaceConfig read = read_hugging_face_config(*loaded.text);
  for (const std::string& problem : read.problems) {
    refuse(shown(file) + ": " + problem, "see docs/huggingface.md for what is read");
  }
  if (!read.problems.empty()) return;
  take(file, add_values(reading, root, Place::Origin::model_files, file, read.model, read.moe));
}

/// The values of the sections model and moe by path.
std::map<std::string, std::string, std::less<>> values_of_model(const Config& config) {
  return written_values(config, [](std::string_view path) {
    return path.starts_with("model.") || path.starts_with("moe.");
  });
}

}  // namespace

void fill_model(Reading& reading, int root, const Surroundings& around) {
  YamlTree& tree = reading.tree;
  const int model = model_section(tree, root);
  if (model < 0) return;
  // `from: null` counts as a missing key, so that --set can remove it.
  std::erase_if(tree.node(model).entries, [&](const YamlEntry& entry) {
    return entry.key == "from" && tree.node(entry.value).kind == YamlNode::Kind::null;
  });
  const YamlEntry* preset = tree.find(model, "preset");
  const YamlEntry* from = tree.find(model, "from");
  if (preset != nullptr && from != nullptr) {
    reading.model_complete = false;
    reading.report({"model-twice", "preset and from both describe the model", "remove one of them"},
                   "model.from", tree.place(from->key_span));
    return;
  }
  // The node is copied, since adding nodes moves it.
  if (preset != nullptr) apply_preset(reading, root, YamlNode(tree.node(preset->value)));
  if (from == nullptr) return;
  apply_from(reading, root, YamlNode(tree.node(from->value)), around);
}

void check_model_against_file(Reading& reading) {
  if (reading.model_values < 0) return;
  ReadResult alone;
  Reading scratch{reading.tree, alone};
  const auto section = [&](const char* name) {
    const YamlEntry* found = reading.tree.find(reading.model_values, name);
    return found == nullptr ? -1 : found->value;
  };
  read_section(scratch, section("model"), "model", {}, alone.config.model);
  read_section(scratch, section("moe"), "moe", {}, alone.config.moe);
  const auto theirs = values_of_model(alone.config);
  auto ours = values_of_model(reading.result.config);
  for (const auto& [path, place] : alone.sources.places()) {
    const auto value = theirs.find(path);
    if (value == theirs.end() || is_of_training(path) || ours[path] == value->second) continue;
    const bool is_scale =
        path.starts_with("model.rope_scaling.") && path != "model.rope_scaling.factor";
    if (is_scale && alone.config.model.rope_scaling.factor == 1.0) continue;
    reading.report({"model-differs",
                    path.substr(path.find('.') + 1) + " is " + shown(ours[path]) + ", but " +
                        shown(reading.model_file) + " says " + value->second,
                    "remove the key: model.from gives it"},
                   path, reading.result.sources.find(path));
  }
}

}  // namespace trainctl
