#include "config/migrate/migrate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "config/migrate/migration.h"
#include "config/migrate/write_yaml.h"
#include "config/mindformers/mindformers_file.h"
#include "config/read/read.h"
#include "config/schema/known_paths.h"
#include "config/schema/values.h"
#include "config/upstream/hugging_face.h"
#include "config/upstream/upstream.h"

namespace trainctl {
namespace {

bool is_section(const std::string& path) {
  const KnownPath* known = find_known_path(path);
  return known != nullptr && known->is_section;
}

/// A key of the old file, by its line: whether it is a map, and the last line of its contents.
struct OldKey {
  bool is_map = false;
  int last_line = 0;
};
using OldKeys = std::map<int, OldKey>;

/// Collects the keys below `map`, each map once despite aliases. Returns their last line.
int collect(const YamlTree& tree, int map, OldKeys& keys, std::set<int>& seen) {
  int last = 0;
  if (!seen.insert(map).second) return last;
  for (const YamlEntry& entry : tree.node(map).entries) {
    const int line = entry.key_span.line;
    const bool is_map = tree.node(entry.value).kind == YamlNode::Kind::map;
    const int below = is_map ? collect(tree, entry.value, keys, seen) : line;
    OldKey& key = keys[line];
    key.is_map = key.is_map || is_map;
    key.last_line = std::max({key.last_line, line, below});
    last = std::max(last, key.last_line);
  }
  return last;
}

/// Removes the position of sections that were created for a key: comments belong only to the key.
void unplace_made_sections(YamlTree& tree, int map, const OldKeys& old) {
  for (YamlEntry& entry : tree.node(map).entries) {
    const auto key = old.find(entry.key_span.line);
    if (tree.node(entry.value).kind != YamlNode::Kind::map) continue;
    if (key == old.end() || !key->second.is_map) entry.key_span.line = 0;
    if (is_section(entry.key)) unplace_made_sections(tree, entry.value, old);
  }
}

void collect_lines(const YamlTree& tree, int map, std::set<int>& lines, std::set<int>& seen) {
  if (!seen.insert(map).second) return;
  for (const YamlEntry& entry : tree.node(map).entries) {
    if (entry.key_span.text == 0 && entry.key_span.line > 0) lines.insert(entry.key_span.line);
    collect_lines(tree, entry.value, lines, seen);
  }
}

/// Moves the comments of a removed section to the first of its keys that remains.
void move_comments(Comments& comments, const OldKeys& old, const std::set<int>& lines) {
  for (const auto& [line, key] : old) {
    if (lines.contains(line) || !key.is_map) continue;
    const auto heir = lines.lower_bound(line);
    if (heir == lines.end() || *heir > key.last_line) continue;
    std::vector<std::string> orphans = std::exchange(comments.above[line], {});
    const std::string behind = std::exchange(comments.behind[line], "");
    if (!behind.empty()) orphans.push_back(behind);
    auto& above = comments.above[*heir];
    above.insert(above.begin(), orphans.begin(), orphans.end());
  }
}

/// Reports unknown keys, with the reader's help. All keys must be known, even in a file that
/// includes others and may be a part of a configuration.
void report_unknown(std::string_view text, const std::string& name, Diagnostics& diagnostics) {
  const ReadResult read = read_config_text(text, name, {});
  for (const Diagnostic& diagnostic : read.diagnostics.list()) {
    const auto is_same = [&](const Diagnostic& one) {
      return one.code == diagnostic.code && one.path == diagnostic.path;
    };
    if (diagnostic.code != "unknown-key") continue;
    if (std::ranges::none_of(diagnostics.list(), is_same)) diagnostics.add(diagnostic);
  }
}

/// Whether an error stops the migration: a contradiction or a key that would be lost. A refused
/// value is only left out.
bool stops(const Diagnostic& diagnostic) {
  return diagnostic.severity == Severity::error &&
         (diagnostic.code == "two-spellings" || diagnostic.code == "duplicate-key" ||
          diagnostic.code == "merge-key" || diagnostic.code == "tag" ||
          diagnostic.code == "unknown-key" || diagnostic.code == "no-counterpart");
}

void soften(Diagnostics& diagnostics) {
  std::vector<Diagnostic> list = diagnostics.list();
  diagnostics.drop_if([](const Diagnostic&) { return true; });
  for (Diagnostic& diagnostic : list) {
    if (!stops(diagnostic)) diagnostic.severity = Severity::warning;
    diagnostics.add(std::move(diagnostic));
  }
}

void report_missing(const std::string& text, Diagnostics& diagnostics) {
  const ReadResult read = read_config_text(text, "", {});
  for (const Diagnostic& diagnostic : read.diagnostics.list()) {
    if (diagnostic.code != "missing-key") continue;
    diagnostics.add({Severity::warning, "missing-key", diagnostic.path,
                     "required, and nothing in the file gives it", diagnostic.help});
  }
}

}  // namespace

Migrated migrate_config(std::string_view given, const std::string& name) {
  Migrated result;
  YamlTree tree;
  const std::string text = normalise_text(given.substr(0, max_yaml_bytes + 4));
  const int index = tree.add_text(Place::Origin::file, name);
  result.diagnostics.add_source(name, text);
  if (!check_text(text, tree.texts[0], result.diagnostics)) return result;
  const int root = parse_yaml(tree, text, index, result.diagnostics);
  if (root < 0) return result;
  if (tree.node(root).kind != YamlNode::Kind::map) {
    const Problem problem = wrong_type(tree.node(root), "a map of sections");
    result.diagnostics.add({Severity::error, problem.code, "", problem.message, problem.help,
                            tree.place(tree.node(root).span)});
    return result;
  }
  OldKeys old;
  std::set<int> seen;
  collect(tree, root, old, seen);
  std::set<int> lines;
  for (const auto& [line, key] : old) lines.insert(line);
  Comments comments = collect_comments(text, lines);

  Spellings spellings = carry_mindformers(tree, root, result.diagnostics);
  spellings.merge(carry_router(tree, root, result.diagnostics));
  spellings.merge(apply_upstream(tree, root, result.diagnostics));
  fill_router(tree, root, spellings, result.diagnostics);
  report_unknown(text, name, result.diagnostics);
  write_own_words(tree, root);
  soften(result.diagnostics);
  result.diagnostics.sort();
  if (result.diagnostics.has_errors()) return result;

  unplace_made_sections(tree, root, old);
  lines.clear();
  seen.clear();
  collect_lines(tree, root, lines, seen);
  move_comments(comments, old, lines);
  const bool includes = tree.find(root, "include") != nullptr;
  result.text = write_tree(tree, root, std::move(comments));
  if (!includes) report_missing(result.text, result.diagnostics);
  result.ok = true;
  return result;
}

namespace {

ForeignValue value_of(const YamlTree& tree, const YamlEntry& entry) {
  ForeignValue value{entry.key, {}, false, false, entry.key_span};
  const YamlNode& node = tree.node(entry.value);
  if (node.kind == YamlNode::Kind::scalar) value.words = {node.scalar};
  value.is_list = node.kind == YamlNode::Kind::sequence;
  for (int item : node.items) value.words.push_back(tree.node(item).scalar);
  value.is_code = node.kind == YamlNode::Kind::map;
  return value;
}

/// Reads JSON or YAML; JSON is a subset of YAML.
std::vector<ForeignValue> read_json_or_yaml(YamlTree& tree, const std::string& text,
                                            Diagnostics& diagnostics) {
  std::vector<ForeignValue> values;
  const int root = parse_yaml(tree, text, 0, diagnostics);
  if (root < 0) return values;
  if (tree.node(root).kind != YamlNode::Kind::map) {
    const Problem problem = wrong_type(tree.node(root), "a map of keys");
    diagnostics.add({Severity::error, problem.code, "", problem.message, problem.help,
                     tree.place(tree.node(root).span)});
    return values;
  }
  for (const YamlEntry& entry : tree.node(root).entries) {
    if (tree.node(entry.value).kind != YamlNode::Kind::null)
      values.push_back(value_of(tree, entry));
  }
  return values;
}

std::vector<ForeignValue> read_values(Project project, YamlTree& tree, const std::string& text,
                                      Diagnostics& diagnostics) {
  if (project == "hugging_face") return read_json_or_yaml(tree, text, diagnostics);
  if (project == "nanogpt") return read_assignments(text);
  return project == "torchtitan" ? read_toml(text) : read_arguments(text);
}

/// Adds the keys of the map in `map`, which may be "", to a section.
void put_section(Migration& migration, const std::string& section, const std::string& map,
                 int index, Diagnostics& diagnostics) {
  YamlTree& tree = migration.tree();
  const int node = map.empty() ? -1 : parse_yaml(tree, map, index, diagnostics);
  if (node < 0) return;
  for (const YamlEntry& entry : std::vector<YamlEntry>(tree.node(node).entries)) {
    migration.put_list(section + entry.key, entry.value, "");
  }
}

/// Reads the keys of a model's config.json together. Returns false for other files: YAML files of
/// other programs may also have a key model_type.
bool take_model(Migration& migration, const std::string& text, const std::string& name,
                std::vector<ForeignValue>& values, Diagnostics& diagnostics) {
  const bool is_model = std::any_of(values.begin(), values.end(), [](const ForeignValue& value) {
    return value.key == "model_type";
  });
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (!is_model || start == std::string::npos || text[start] != '{') return false;
  const HuggingFaceConfig read = read_hugging_face_config(text);
  for (const std::string& problem : read.problems) {
    diagnostics.add({Severity::error, "model-directory", "model", problem,
                     "see docs/huggingface.md for what is read", whole_file(name)});
  }
  if (!read.problems.empty()) return true;
  const int index = migration.tree().add_text(Place::Origin::model_files, name);
  put_section(migration, "model.", read.model, index, diagnostics);
  put_section(migration, "moe.", read.moe, index, diagnostics);
  return true;
}

/// Whether the code means a value of a wrong type, out of range, or not among the words.
bool is_bad_value(const std::string& code) {
  return code == "wrong-type" || code == "out-of-range" || code == "bad-word";
}

/// Reports what prevents the use of the new file: values of the old file that are not allowed, and
/// missing required keys.
void report_unready(const std::string& text, Diagnostics& diagnostics) {
  const ReadResult read = read_config_text(text, "", {}, {.load = {}, .variable = {}});
  for (const Diagnostic& one : read.diagnostics.list()) {
    if (one.severity != Severity::error || one.code == "unset-variable") continue;
    const bool missing = one.code == "missing-key";
    diagnostics.add({is_bad_value(one.code) ? Severity::error : Severity::warning, one.code,
                     one.path, missing ? "required, and nothing in the file gives it" : one.message,
                     one.help});
  }
}

struct TextPlace {
  int line = 1;
  int column = 1;
};

/// The first control character, which a terminal might obey; none in a normal text.
std::optional<TextPlace> find_control(std::string_view text) {
  TextPlace place;
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    const bool is_space = letter == '\n' || letter == '\t' || letter == '\r' || letter == '\f';
    if ((code < 0x20 && !is_space) || code == 0x7f) return place;
    place.line += letter == '\n' ? 1 : 0;
    place.column = letter == '\n' ? 1 : place.column + 1;
  }
  return std::nullopt;
}

}  // namespace

Migrated migrate_from(Project project, std::string_view given, const std::string& name) {
  Migrated result;
  YamlTree tree;
  const std::string text = normalise_text(given.substr(0, max_yaml_bytes + 4));
  tree.add_text(Place::Origin::file, name);
  result.diagnostics.add_source(name, text);
  if (text.size() > max_yaml_bytes) {
    result.diagnostics.add({Severity::error, "too-large", "", "the file is larger than 1 MiB",
                            "is this the right file?", whole_file(name)});
    return result;
  }
  if (const auto control = find_control(text)) {
    result.diagnostics.add(
        {Severity::error,
         "control-character",
         "",
         "a control character is not allowed",
         "is this the right file?",
         {Place::Origin::file, name, control->line, control->column, control->column + 1}});
    return result;
  }
  std::vector<ForeignValue> values = read_values(project, tree, text, result.diagnostics);
  if (result.diagnostics.has_errors()) return result;
  if (values.empty()) {
    result.diagnostics.add({Severity::error, "missing-key", "",
                            formatted("no keys of {} found", name_of(project)), "is --from right?",
                            whole_file(name)});
    return result;
  }
  Migration migration(project, name, values, tree, result.diagnostics);
  const bool is_model =
      project == "hugging_face" && take_model(migration, text, name, values, result.diagnostics);
  if (!is_model) {
    migration.carry_rows();
    apply_project_rules(migration);
  }
  result.diagnostics.sort();
  if (result.diagnostics.has_errors()) return result;
  migration.comments().header = {formatted("# From {} ({}).", shown(name), name_of(project))};
  result.text = write_tree(tree, migration.root(), std::move(migration.comments()));
  report_unready(result.text, result.diagnostics);
  result.ok = !result.diagnostics.has_errors();
  return result;
}

}  // namespace trainctl
