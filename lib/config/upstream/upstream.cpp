#include "config/upstream/upstream.h"

#include <algorithm>

#include "config/schema/values.h"
#include "config/support/foreign.h"
#include "config/upstream/claims.h"
#include "config/upstream/short_sections.h"

namespace trainctl {
namespace {

std::string_view first_key(std::string_view path) { return path.substr(0, path.find('.')); }

const UpstreamKey* find_row(std::string_view key) {
  for (const UpstreamKey& row : all_upstream_keys()) {
    if (row.key == key) return &row;
  }
  return nullptr;
}

/// The row of a key in one of our sections, or nullptr. The table lists the keys of the recompute
/// config under "recompute.".
const UpstreamKey* find_row(std::string_view section, const std::string& key) {
  for (const UpstreamKey& row : all_upstream_keys()) {
    const bool here =
        section == "parallel" || section == row.section || section == first_key(row.path);
    if (here && row.key == key) return &row;
  }
  const bool may_recompute = section == "recompute" || section == "parallel";
  return may_recompute ? find_row("recompute." + key) : nullptr;
}

/// The section of our schema that takes the keys of a section as written.
std::string canonical_section(const std::string& written) {
  for (const auto& [upstream, ours] : upstream_sections()) {
    if (written == upstream) return std::string(ours);
  }
  return written;
}

/// Of a MindFormers file's runner: where such a file is read, these are gone already.
bool is_of_runner(const ForeignKey& foreign) {
  return foreign.answer != ForeignKey::Answer::not_built;
}

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

  /// Takes the upstream keys out of a section; false: the whole section is removed.
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
    entry.value = claims_.copy(entry.value);  // an alias may share it
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

  /// True if the reader shall refuse the key as one that it does not know.
  bool answer(const ForeignKey& foreign, const YamlEntry& entry) {
    const YamlNode& node = tree_.node(entry.value);
    if (asks_nothing(foreign, node)) return false;
    if (is_of_runner(foreign)) return true;
    const std::string path =
        (foreign.section.empty() ? "" : std::string(foreign.section) + ".") + entry.key;
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

  /// Claims `path` with a value that follows from the given one.
  void claim_derived(const std::string& path, const YamlEntry& entry, const std::string& value,
                     const std::string& written, bool weak = false) {
    const int node = with_value(entry, value).value;
    claims_.add({path, written, entry.key_span, node, weak, true});
  }

  /// The same key with another value at the same position.
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
                      entry.key + " is deprecated", "write " + std::string(row.replacement),
                      tree_.place(entry.key_span)});
  }

  /// True if the entry was handled, false if it stays in its section, where its path is `canonical`
  /// in our words.
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
    switch (row.conversion) {
      case Conversion::same: claim(path, entry, written); break;
      case Conversion::dict: take_children(row, entry, written); break;
      case Conversion::recompute: take_recompute(row, entry, written); break;
      case Conversion::index_fusion: take_index(row, entry, written); break;
      case Conversion::true_is_fp16: take_bool(row, entry, written, "fp16", ""); break;
      case Conversion::true_is_bf16: take_bool(row, entry, written, "bf16", ""); break;
      case Conversion::full_batch:
        take_bool(row, entry, written, "full_batch", "data_parallel");
        break;
      case Conversion::callable:
        report({"callable", entry.key + " is a Python function upstream; in YAML it must be null",
                std::string(row.note)},
               path, tree_.node(entry.value).span);
        break;
      case Conversion::internal:
        report({"internal-key", entry.key + " is internal upstream; it must be null", "remove it"},
               path, tree_.node(entry.value).span);
        break;
    }
    return true;
  }

  /// A key of a nested map: by its row, or else under its own name, which the reader checks.
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
