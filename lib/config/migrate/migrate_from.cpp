#include "config/migrate/migrate_from.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "config/migrate/foreign_text.h"
#include "config/migrate/migration.h"
#include "config/migrate/project_rules.h"
#include "config/migrate/write_yaml.h"
#include "config/read/read.h"
#include "config/schema/values.h"
#include "config/upstream/hugging_face.h"

namespace trainctl {
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

/// JSON is YAML.
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
  switch (project) {
    case Project::hugging_face: return read_json_or_yaml(tree, text, diagnostics);
    case Project::nanogpt: return read_assignments(text);
    case Project::torchtitan: return read_toml(text);
    default: break;
  }
  return read_arguments(text);
}

/// The keys of a map, which may be "", as keys of a section.
void put_section(Migration& migration, const std::string& section, const std::string& map,
                 int index, Diagnostics& diagnostics) {
  YamlTree& tree = migration.tree();
  const int node = map.empty() ? -1 : parse_yaml(tree, map, index, diagnostics);
  if (node < 0) return;
  for (const YamlEntry& entry : std::vector<YamlEntry>(tree.node(node).entries)) {
    migration.put_list(section + entry.key, entry.value, "");
  }
}

/// The keys of a model's config.json, which are read together. Other programs have a key of that
/// name in their YAML.
bool take_model(Migration& migration, const std::string& text, const std::string& name,
                std::vector<ForeignValue>& values, Diagnostics& diagnostics) {
  const bool is_model = std::any_of(values.begin(), values.end(), [](const ForeignValue& value) {
    return value.key == "model_type";
  });
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (!is_model || start == std::string::npos || text[start] != '{') return false;
  const HuggingFaceConfig read = read_hugging_face_config(text);
  for (const std::string& problem : read.problems) {
    diagnostics.add({Severity::error,
                     "model-directory",
                     "model",
                     problem,
                     "see docs/huggingface.md for what is read",
                     {Place::Origin::file, name, 0, 0, 0}});
  }
  if (!read.problems.empty()) return true;
  const int index = migration.tree().add_text(Place::Origin::model_files, name);
  put_section(migration, "model.", read.model, index, diagnostics);
  put_section(migration, "moe.", read.moe, index, diagnostics);
  return true;
}

/// Whether a value is something else than a number where one is asked for, or none that can be.
bool is_bad_value(const std::string& code) {
  return code == "wrong-type" || code == "out-of-range" || code == "bad-word";
}

/// What keeps the new file from being used: a value of the old one that cannot be, or what that
/// file does not say.
void report_unready(const std::string& text, Diagnostics& diagnostics) {
  const ReadResult read = read_config_text(text, "", {}, {.load = {}, .variable = {}});
  for (const Diagnostic& one : read.diagnostics.list()) {
    if (one.severity != Severity::error || one.code == "unset-variable") continue;
    const bool missing = one.code == "missing-key";
    diagnostics.add({is_bad_value(one.code) ? Severity::error : Severity::warning,
                     one.code,
                     one.path,
                     missing ? "required, and nothing in the file gives it" : one.message,
                     one.help,
                     {}});
  }
}

struct TextPlace {
  int line = 1;
  int column = 1;
};

/// The first byte that a terminal might obey and no text has.
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
    result.diagnostics.add({Severity::error,
                            "too-large",
                            "",
                            "the file is larger than 1 MiB",
                            "is this the right file?",
                            {Place::Origin::file, name, 0, 0, 0}});
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
    result.diagnostics.add({Severity::error,
                            "missing-key",
                            "",
                            "no keys of " + std::string(name_of(project)) + " found",
                            "is --from right?",
                            {Place::Origin::file, name, 0, 0, 0}});
    return result;
  }
  Migration migration(project, name, values, tree, result.diagnostics);
  const bool is_model = project == Project::hugging_face &&
                        take_model(migration, text, name, values, result.diagnostics);
  if (!is_model) {
    migration.carry_rows();
    apply_project_rules(migration);
  }
  result.diagnostics.sort();
  if (result.diagnostics.has_errors()) return result;
  migration.comments().header = {"# From " + shown(name) + " (" + std::string(name_of(project)) +
                                 ")."};
  result.text = write_tree(tree, migration.root(), std::move(migration.comments()));
  report_unready(result.text, result.diagnostics);
  result.ok = !result.diagnostics.has_errors();
  return result;
}

}  // namespace trainctl
