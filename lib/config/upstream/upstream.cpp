#include "config/upstream/upstream.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text.h"
#include "config/schema/fields.h"
#include "config/schema/known_paths.h"
#include "config/schema/list_values.h"
#include "config/schema/values.h"
#include "config/support/standing.h"

namespace trainctl {

namespace {

// Claims of canonical paths by values in upstream spellings. Several spellings may claim the same
// path only with equal values.

/// A value written under `spelling` that belongs at `path`.
struct Claim {
  std::string path;
  std::string spelling;  // as written, such as "parallel_config.model_parallel"
  Span key_span;
  int node = 0;
  bool weak = false;     // yields to any other value that does not contradict it: full_batch
  bool derived = false;  // computed from another value (fp16: true), so messages about the value do
                         // not name the spelling
};

class Claims {
 public:
  Claims(YamlTree& tree, int root, Diagnostics& diagnostics)
      : tree_(tree), root_(root), diagnostics_(diagnostics) {}

  /// Adds a claim; a map is split into one claim for each of its keys.
  void add(const Claim& claim);
  /// A new node with the same content and the same mark to override, if any.
  int copy(int node);
  /// Writes the winner of each path into the tree; reports "two-spellings".
  Spellings settle();

 private:
  void add_parts(const Claim& claim, int depth);
  /// The claims of a path and the value already in the tree, in the order of the text.
  std::vector<Claim> rivals(const std::vector<Claim>& given) const;
  const Claim& winner(const std::vector<Claim>& rivals);
  void compare(const Claim& first, const Claim& second);
  bool agree(const Claim& first, const Claim& second) const;
  bool is_set_option(const Claim& claim) const;
  void put(const Claim& claim);
  /// The map at a key, created if missing; -1 if the key has another kind of value.
  int enter(int map, const std::string& key, const Span& span);

  YamlTree& tree_;
  int root_;
  Diagnostics& diagnostics_;
  std::vector<Claim> list_;
  std::set<int> owned_;  // maps that no alias shares
};

// Limits the work when aliases repeat one map many times.
constexpr std::size_t max_claims = 2000;
constexpr int deepest_section = 4;

}  // namespace

int Claims::copy(int node) {
  YamlNode made = tree_.node(node);
  tree_.node(node).overrides = -1;
  return tree_.add_node(std::move(made));
}

void Claims::add(const Claim& claim) { add_parts(claim, 0); }

void Claims::add_parts(const Claim& claim, int depth) {
  if (list_.size() > max_claims) return;
  const bool map = tree_.node(claim.node).kind == YamlNode::Kind::map;
  if (list_.size() == max_claims) {
    diagnostics_.add({Severity::error, "too-large", claim.path,
                      formatted("more than {} values have upstream names", max_claims),
                      "is this the right file?", tree_.place(claim.key_span)});
  }
  const KnownPath* known = find_known_path(claim.path);
  const bool is_section = known != nullptr && known->is_section;
  const bool is_empty = map && tree_.node(claim.node).entries.empty() && !is_section;
  if (!map || is_empty || depth >= deepest_section) {
    list_.push_back(claim);
    return;
  }
  for (const YamlEntry& entry : tree_.node(claim.node).entries) {
    add_parts({.path = claim.path + "." + entry.key,
               .spelling = claim.spelling + "." + entry.key,
               .key_span = entry.key_span,
               .node = entry.value},
              depth + 1);
  }
}

bool Claims::is_set_option(const Claim& claim) const {
  return tree_.place(claim.key_span).origin == Place::Origin::set_option;
}

std::vector<Claim> Claims::rivals(const std::vector<Claim>& given) const {
  std::vector<Claim> result = given;
  const std::string& path = given.front().path;
  const YamlEntry* entry = tree_.find_path(root_, path);
  if (entry == nullptr) return result;
  result.push_back({path, path, entry->key_span, entry->value, false});
  std::stable_sort(result.begin(), result.end(), [](const Claim& a, const Claim& b) {
    return std::tie(a.key_span.text, a.key_span.line, a.key_span.column) <
           std::tie(b.key_span.text, b.key_span.line, b.key_span.column);
  });
  return result;
}

bool Claims::agree(const Claim& first, const Claim& second) const {
  if (first.weak != second.weak) {
    return tree_.node(first.weak ? second.node : first.node).scalar != "full_batch";
  }
  return same_value(tree_, first.path, first.node, second.node);
}

void Claims::compare(const Claim& first, const Claim& second) {
  if (agree(first, second)) return;
  const Place before = tree_.place(first.key_span);
  const Place place = tree_.place(second.key_span);
  const auto line = [&](const Place& where) {
    return where.file == place.file ? formatted("line {}", where.line) : where.to_string();
  };
  const auto written = [&](const Claim& claim) {
    return last_key(claim.spelling) + ": " + flow_text(tree_, claim.node);
  };
  diagnostics_.add({Severity::error, "two-spellings", second.path,
                    shown(written(second)) + " on " + line(place) + " contradicts " +
                        shown(written(first)) + " on " + line(before) + "; both mean " +
                        second.path,
                    "remove one of the two", place});
}

const Claim& Claims::winner(const std::vector<Claim>& rivals) {
  // The last --set option wins, as within one spelling.
  for (auto claim = rivals.rbegin(); claim != rivals.rend(); ++claim) {
    if (is_set_option(*claim)) return *claim;
  }
  for (std::size_t i = 1; i < rivals.size(); ++i) compare(rivals.front(), rivals[i]);
  for (const Claim& claim : rivals) {
    if (!claim.weak) return claim;
  }
  return rivals.front();
}

Spellings Claims::settle() {
  std::map<std::string, std::vector<Claim>> by_path;
  for (const Claim& claim : list_) by_path[claim.path].push_back(claim);
  Spellings spellings;
  for (const auto& [path, given] : by_path) {
    const std::vector<Claim> all = rivals(given);
    const Claim& chosen = winner(all);
    if (chosen.spelling == path) continue;
    put(chosen);
    if (!chosen.derived) spellings[path] = chosen.spelling;
  }
  return spellings;
}

int Claims::enter(int map, const std::string& key, const Span& span) {
  YamlEntry* entry = tree_.find(map, key);
  const auto kind = entry == nullptr ? YamlNode::Kind::null : tree_.node(entry->value).kind;
  if (kind == YamlNode::Kind::map && owned_.contains(entry->value)) return entry->value;
  if (kind != YamlNode::Kind::map && kind != YamlNode::Kind::null) return -1;
  if (entry == nullptr) {
    YamlNode empty;
    empty.span = span;
    const int made = tree_.add_node(std::move(empty));
    tree_.node(map).entries.push_back({key, span, made});
  }
  const int own = copy(tree_.find(map, key)->value);
  tree_.node(own).kind = YamlNode::Kind::map;
  tree_.find(map, key)->value = own;
  owned_.insert(own);
  return own;
}

void Claims::put(const Claim& claim) {
  int map = root_;
  std::size_t start = 0;
  for (std::size_t dot = 0; (dot = claim.path.find('.', start)) != std::string::npos;) {
    map = enter(map, claim.path.substr(start, dot - start), claim.key_span);
    if (map < 0) return;  // the reader reports the wrong value there
    start = dot + 1;
  }
  const std::string key = claim.path.substr(start);
  if (YamlEntry* entry = tree_.find(map, key)) {
    *entry = {key, claim.key_span, claim.node};
  } else {
    tree_.node(map).entries.push_back({key, claim.key_span, claim.node});
  }
}

namespace {

constexpr std::size_t longest_text = 60;

/// Cuts the text off, since aliases may make it far longer than the file.
void write_flow(const YamlTree& tree, int index, std::string& text) {
  if (text.size() > longest_text) return;
  const YamlNode& node = tree.node(index);
  const char* separator = "";
  switch (node.kind) {
    case YamlNode::Kind::null: text += "null"; break;
    case YamlNode::Kind::scalar: text += node.scalar.empty() ? "\"\"" : shown(node.scalar); break;
    case YamlNode::Kind::sequence:
      text += "[";
      for (const int item : node.items) {
        if (text.size() > longest_text) break;
        text += separator;
        write_flow(tree, item, text);
        separator = ", ";
      }
      text += "]";
      break;
    case YamlNode::Kind::map:
      text += "{";
      for (const YamlEntry& entry : node.entries) {
        if (text.size() > longest_text) break;
        text += separator + shown(entry.key) + ": ";
        write_flow(tree, entry.value, text);
        separator = ", ";
      }
      text += "}";
      break;
  }
}

}  // namespace

std::string flow_text(const YamlTree& tree, int node) {
  std::string text;
  write_flow(tree, node, text);
  return shown(text);
}

bool same_value(const YamlTree& tree, const std::string& path, int first, int second) {
  std::optional<bool> same;
  const auto each = [&]<class Value>(const std::string& at, const Value&, const Field& field) {
    if constexpr (!std::is_same_v<Value, std::vector<DataSource>> &&
                  !std::is_same_v<Value, std::vector<LayerEntry>>) {
      Value a{};
      Value b{};
      if (at != path || read_field(tree, first, field, a) || read_field(tree, second, field, b)) {
        return;
      }
      same = a == b;
    }
  };
  visit_values(Config{}, each);
  return same.value_or(flow_text(tree, first) == flow_text(tree, second));
}

namespace {

/// A visitor that replaces upstream words in a section by ours.
class WordWriter {
 public:
  WordWriter(YamlTree& tree, int map) : tree_(tree), map_(map) {}

  template <class Value>
  void operator()(const Value& value, const Field& field) {
    if constexpr (IsChoice<Value>) {
      rewrite(value, field);
    } else if constexpr (std::is_same_v<Value, CpCommTypes>) {
      rewrite_layers(field);
    }
  }
  template <class Value>
  void operator()(const std::optional<Value>&, const Field& field) {
    if constexpr (IsChoice<Value>) rewrite(Value{}, field);
  }
  template <class Section>
  void section(const Section& value, const Field& field) {
    const YamlEntry* entry = tree_.find(map_, field.key);
    if (entry == nullptr || tree_.node(entry->value).kind != YamlNode::Kind::map) return;
    WordWriter inner(tree_, entry->value);
    fields(inner, value);
  }

 private:
  template <class Choice>
  void rewrite(Choice value, const Field& field) {
    YamlEntry* entry = tree_.find(map_, field.key);
    if (entry == nullptr || read_field(tree_, entry->value, field, value)) return;
    YamlNode node = tree_.node(entry->value);  // a copy, since an alias may share it
    if (node.scalar.find("${") != std::string::npos || node.scalar == word_of(value)) return;
    node.scalar = word_of(value);
    const int made = tree_.add_node(std::move(node));
    tree_.find(map_, field.key)->value = made;
  }

  /// Replaces each word of a list, or a single word.
  void rewrite_layers(const Field& field) {
    const YamlEntry* entry = tree_.find(map_, field.key);
    if (entry == nullptr) return;
    if (tree_.node(entry->value).kind != YamlNode::Kind::sequence) {
      return rewrite(CpCommType{}, field);
    }
    for (std::size_t i = 0; i < tree_.node(entry->value).items.size(); ++i) {
      YamlNode word = tree_.node(tree_.node(entry->value).items[i]);
      CpCommTypes types;
      if (read_field(tree_, tree_.node(entry->value).items[i], field, types)) continue;
      word.scalar = word_of(types.layers.front());
      if (types.layers.size() > 1) word.scalar += formatted("*{}", types.layers.size());
      const int made = tree_.add_node(std::move(word));
      tree_.node(entry->value).items[i] = made;
      entry = tree_.find(map_, field.key);
    }
  }

  YamlTree& tree_;
  int map_;
};

}  // namespace

void write_own_words(YamlTree& tree, int root) {
  const Config config;
  WordWriter writer(tree, root);
  fields(writer, config);
}

namespace {

constexpr std::pair<std::string_view, std::string_view> short_names[] = {
    {"precision", "compute"}, {"recompute", "select"}, {"output", "dir"}};

/// A new node like the node `scalar`, with `text` as its value.
int other_text(YamlTree& tree, int scalar, const std::string& text) {
  YamlNode node = tree.node(scalar);
  node.scalar = text;
  node.quoted = false;
  return tree.add_node(std::move(node));
}

void give_recompute(YamlTree& tree, const YamlEntry& entry, int map) {
  const std::string word = lower_case(tree.node(entry.value).scalar);
  const bool off = word == "false" || word == "none";
  const int enable = other_text(tree, entry.value, off ? "false" : "true");
  tree.node(map).entries.push_back({"enable", entry.key_span, enable});
  if (off || word == "true") return;
  // Megatron's word for attention without stored scores, which are never stored here.
  const int select = word == "selective" ? other_text(tree, entry.value, "attention") : entry.value;
  tree.node(map).entries.push_back({"select", entry.key_span, select});
}

}  // namespace

std::string_view short_key(std::string_view section) {
  for (const auto& [name, key] : short_names) {
    if (name == section) return key;
  }
  return "";
}

void expand_short_sections(YamlTree& tree, int root) {
  for (std::size_t i = 0; i < tree.node(root).entries.size(); ++i) {
    const YamlEntry entry = tree.node(root).entries[i];
    const YamlNode value = tree.node(entry.value);
    const std::string_view key = short_key(entry.key);
    if (key.empty() || value.kind != YamlNode::Kind::scalar) continue;
    const int map = tree.add_map({}, value.span);
    if (entry.key == "recompute") {
      give_recompute(tree, entry, map);
    } else {
      tree.node(map).entries.push_back({std::string(key), entry.key_span, entry.value});
    }
    tree.node(root).entries[i].value = map;
  }
}

namespace {

std::string_view first_key(std::string_view path) { return path.substr(0, path.find('.')); }

const UpstreamKey* find_row(std::string_view key) {
  for (const UpstreamKey& row : all_upstream_keys()) {
    if (row.key == key) return &row;
  }
  return nullptr;
}

/// The row of a key in one of our sections, or nullptr. The table lists the keys of the recompute
/// config with the prefix "recompute.".
const UpstreamKey* find_row(std::string_view section, const std::string& key) {
  for (const UpstreamKey& row : all_upstream_keys()) {
    const bool here =
        section == "parallel" || section == row.section || section == first_key(row.path);
    if (here && row.key == key) return &row;
  }
  const bool may_recompute = section == "recompute" || section == "parallel";
  return may_recompute ? find_row("recompute." + key) : nullptr;
}

/// Our section that accepts the keys of a section as written.
std::string canonical_section(const std::string& written) {
  for (const auto& [upstream, ours] : upstream_sections()) {
    if (written == upstream) return std::string(ours);
  }
  return written;
}

/// Whether the key belongs to the runner of a MindFormers file. Reading a whole such file has
/// already removed these keys.
bool is_of_runner(const ForeignKey& foreign) { return foreign.answer != "not_built"; }

class Rewriter {
 public:
  Rewriter(YamlTree& tree, int root, Diagnostics& diagnostics)
      : tree_(tree), root_(root), diagnostics_(diagnostics), claims_(tree, root, diagnostics) {}

  Spellings run() {
    std::vector<YamlEntry> kept;
    for (YamlEntry entry : std::vector<YamlEntry>(tree_.node(root_).entries)) {
      const ForeignKey* foreign = find_foreign("", entry.key);
      const bool is_dropped = foreign != nullptr ? !answer(*foreign, entry) : !keep_section(entry);
      if (!is_dropped) kept.push_back(std::move(entry));
    }
    tree_.node(root_).entries = std::move(kept);
    return claims_.settle();
  }

 private:
  using Kind = YamlNode::Kind;

  Kind kind(int node) const { return tree_.node(node).kind; }

  void report(Problem problem, std::string_view path, const Span& span) {
    diagnostics_.add({Severity::error, std::move(problem.code), std::string(path),
                      std::move(problem.message), std::move(problem.help), tree_.place(span)});
  }

  bool has_foreign_keys(const std::string& section, int map) const {
    const auto& entries = tree_.node(map).entries;
    return std::any_of(entries.begin(), entries.end(), [&](const YamlEntry& entry) {
      return find_row(section, entry.key) != nullptr || find_foreign(section, entry.key) != nullptr;
    });
  }

  /// Moves the upstream keys out of a section; returns false if the whole section is to go.
  bool keep_section(YamlEntry& entry) {
    const std::string section = canonical_section(entry.key);
    const bool ours = section == entry.key;
    if (kind(entry.value) != Kind::map) {
      if (!ours && kind(entry.value) != Kind::null) {
        const YamlNode& node = tree_.node(entry.value);
        report(wrong_type(node, "a map of keys"), entry.key, node.span);
      }
      return ours;
    }
    if (ours && !has_foreign_keys(section, entry.value)) return true;
    entry.value = claims_.copy(entry.value);  // a copy, since an alias may share it
    std::vector<YamlEntry> kept;
    for (const YamlEntry& inner : std::vector<YamlEntry>(tree_.node(entry.value).entries)) {
      const std::string place = entry.key + "." + inner.key;
      const UpstreamKey* row = find_row(section, inner.key);
      const ForeignKey* foreign = find_foreign(section, inner.key);
      const std::string canonical = section + "." + inner.key;
      if (row != nullptr && take(*row, inner, place, canonical)) continue;
      if (row == nullptr && foreign != nullptr && !answer(*foreign, inner)) continue;
      if (ours) {
        kept.push_back(inner);
      } else {
        claim(canonical, inner, place);
      }
    }
    tree_.node(entry.value).entries = std::move(kept);
    return ours;
  }

  /// Whether the reader must refuse the key as unknown.
  bool answer(const ForeignKey& foreign, const YamlEntry& entry) {
    const YamlNode& node = tree_.node(entry.value);
    if (asks_nothing(foreign, node)) return false;
    if (is_of_runner(foreign)) return true;
    const std::string path =
        (foreign.section.empty() ? "" : formatted("{}.", foreign.section)) + entry.key;
    const auto plain = split_words(foreign.plain);
    std::string help = help_of(foreign);
    if (!plain.empty()) help += "; the value " + plain.front() + " is accepted";
    diagnostics_.add({Severity::error, "not-built", path, "not built yet: " + entry.key, help,
                      tree_.place(entry.key_span)});
    return false;
  }

  void claim(const std::string& path, const YamlEntry& entry, const std::string& written) {
    claims_.add({path, written, entry.key_span, entry.value});
  }

  /// Claims `path` with a value derived from that of `entry`.
  void claim_derived(const std::string& path, const YamlEntry& entry, const std::string& value,
                     const std::string& written, bool weak = false) {
    const int node = with_value(entry, value).value;
    claims_.add({path, written, entry.key_span, node, weak, true});
  }

  /// A copy of `entry` with the value `text` at the same position.
  YamlEntry with_value(const YamlEntry& entry, const std::string& text) {
    YamlNode node;
    node.kind = Kind::scalar;
    node.scalar = text;
    node.span = tree_.node(entry.value).span;
    node.overrides = tree_.node(entry.value).overrides;
    return {entry.key, entry.key_span, tree_.add_node(std::move(node))};
  }

  void warn_deprecated(const UpstreamKey& row, const YamlEntry& entry) {
    if (!row.deprecated()) return;
    diagnostics_.add({Severity::warning, "deprecated", std::string(row.path),
                      entry.key + " is deprecated", formatted("write {}", row.replacement),
                      tree_.place(entry.key_span)});
  }

  /// Claims the value of a key. Returns false if the entry stays in its section, where its path in
  /// our schema is `canonical`.
  bool take(const UpstreamKey& row, const YamlEntry& entry, const std::string& written,
            const std::string& canonical) {
    const std::string path(row.path);
    const bool is_null = kind(entry.value) == Kind::null;
    const bool says_nothing = is_null && row.fallback == "null";
    if (written == path) return says_nothing;
    const bool is_section = is_null || kind(entry.value) == Kind::map;
    if (is_section && path.starts_with(canonical + ".")) return false;
    warn_deprecated(row, entry);
    if (says_nothing) return true;
    const Conversion how = row.conversion;
    if (how == "same") claim(path, entry, written);
    if (how == "dict") take_children(row, entry, written);
    if (how == "recompute") take_recompute(row, entry, written);
    if (how == "index_fusion") take_index(row, entry, written);
    if (how == "true_is_fp16") take_bool(row, entry, written, "fp16", "");
    if (how == "true_is_bf16") take_bool(row, entry, written, "bf16", "");
    if (how == "full_batch") take_bool(row, entry, written, "full_batch", "data_parallel");
    if (how == "callable") {
      report({"callable", entry.key + " is a Python function upstream; in YAML it must be null",
              std::string(row.note)},
             path, tree_.node(entry.value).span);
    }
    if (how == "internal") {
      report({"internal-key", entry.key + " is internal upstream; it must be null", "remove it"},
             path, tree_.node(entry.value).span);
    }
    return true;
  }

  /// Handles a key of a nested map: by its row, else under its own name, which the reader checks.
  void take_child(const std::string& prefix, const std::string& path, const YamlEntry& child,
                  const std::string& written) {
    const UpstreamKey* row = find_row(prefix + "." + child.key);
    const std::string place = written + "." + child.key;
    const ForeignKey* foreign = find_foreign(prefix, child.key);
    if (row != nullptr) {
      take(*row, child, place, place);
    } else if (foreign != nullptr && !is_of_runner(*foreign)) {
      answer(*foreign, child);
    } else {
      claim(path + "." + child.key, child, place);
    }
  }

  void take_children(const UpstreamKey& row, const YamlEntry& entry, const std::string& written) {
    if (kind(entry.value) != Kind::map) return claim(std::string(row.path), entry, written);
    for (const YamlEntry& child : std::vector<YamlEntry>(tree_.node(entry.value).entries)) {
      take_child(std::string(row.key), std::string(row.path), child, written);
    }
  }

  void take_recompute(const UpstreamKey& row, const YamlEntry& entry, const std::string& written) {
    const Kind given = kind(entry.value);
    if (given == Kind::null) return;
    if (given == Kind::map && row.key == "recompute") {
      for (const YamlEntry& child : std::vector<YamlEntry>(tree_.node(entry.value).entries)) {
        take_child("recompute", "recompute", child, written);
      }
    } else if (given == Kind::sequence) {
      claim_derived("recompute.enable", entry, "true", written);
      claim("recompute.layers_per_stage", {entry.key, entry.key_span, claims_.copy(entry.value)},
            written);
    } else {
      claim("recompute.enable", entry, written);
    }
  }

  void take_index(const UpstreamKey& row, const YamlEntry& entry, const std::string& written) {
    const YamlNode& node = tree_.node(entry.value);
    if (node.kind != Kind::sequence) {
      return report(wrong_type(node, "a list of indices like [20, 35]"), row.path, node.span);
    }
    claim_derived("parallel.comm_fusion.allreduce.mode", entry, "index", written);
    claim(std::string(row.path), {entry.key, entry.key_span, claims_.copy(entry.value)}, written);
  }

  void take_bool(const UpstreamKey& row, const YamlEntry& entry, const std::string& written,
                 const char* when_true, const std::string& when_false) {
    bool value = false;
    const YamlNode& node = tree_.node(entry.value);
    if (auto problem = read_value(node, Field{}, value)) {
      return report(std::move(*problem), row.path, node.span);
    }
    if (value) return claim_derived(std::string(row.path), entry, when_true, written);
    if (when_false.empty()) return;
    claim_derived(std::string(row.path), entry, when_false, written, true);
  }

  YamlTree& tree_;
  int root_;
  Diagnostics& diagnostics_;
  Claims claims_;
};

}  // namespace

Spellings apply_upstream(YamlTree& tree, int root, Diagnostics& diagnostics) {
  expand_short_sections(tree, root);
  return Rewriter(tree, root, diagnostics).run();
}

}  // namespace trainctl
