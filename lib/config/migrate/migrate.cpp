#include "config/migrate/migrate.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "config/migrate/write_yaml.h"
#include "config/mindformers/mindformers_file.h"
#include "config/read/read.h"
#include "config/schema/known_paths.h"
#include "config/schema/values.h"
#include "config/upstream/mindformers_experts.h"
#include "config/upstream/own_words.h"
#include "config/upstream/upstream.h"
#include "config/yaml/comments.h"

namespace trainctl {
namespace {

bool is_section(const std::string& path) {
  const KnownPath* known = find_known_path(path);
  return known != nullptr && known->is_section;
}

/// A key of the file as it was: where it and what is below it stand.
struct OldKey {
  bool is_map = false;
  int last_line = 0;
};
using OldKeys = std::map<int, OldKey>;

/// The last line below `map`; each map is looked at once, whatever the aliases.
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

/// A section that was created for one of its keys has that key's position, but not its comments.
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

/// The comments of a section that went away move to the first of its keys that stayed.
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

/// Reports the keys that the schema does not have, with the reader's help. A file that includes
/// others may be a part of a configuration; all of its keys must be known still.
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

/// What an error means here: a contradiction and a key that would be lost stop, a value that is
/// refused stays behind.
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
    diagnostics.add({Severity::warning,
                     "missing-key",
                     diagnostic.path,
                     "required, and nothing in the file gives it",
                     diagnostic.help,
                     {}});
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

}  // namespace trainctl
