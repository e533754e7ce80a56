#include "config/read/unknown_key.h"

#include <algorithm>
#include <utility>

#include "config/read/value_at.h"
#include "config/schema/fields.h"
#include "config/schema/known_paths.h"
#include "config/support/foreign.h"
#include "config/upstream/other_keys.h"
#include "config/upstream/upstream.h"

namespace trainctl {
namespace {

constexpr std::size_t most_inner_hints = 6;  // of the keys of an unknown section

std::string joined(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
}

bool takes(const YamlTree& tree, const std::string& path, int node) {
  return !problem_at(path, tree, node);
}

/// Whether each key takes its value.
bool fits(const Hint& hint) {
  return std::ranges::all_of(hint.values, [](const HintValue& value) {
    Config scratch;
    return value.text.empty() || value.text.starts_with('[') ||
           !set_value(scratch, value.path, value.text);
  });
}

std::string text_of(const Hint& hint) { return fits(hint) ? hint.text : hint.without_values; }

/// A word as it is, a list as [1, 2], "" for anything else.
std::string value_text(const YamlTree& tree, int value) {
  const YamlNode& node = tree.node(value);
  if (node.kind == YamlNode::Kind::scalar) return node.scalar;
  return node.kind == YamlNode::Kind::sequence ? flow_text(tree, value) : "";
}

/// The first hint that takes the value, or "".
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

  /// A whole path at the top level.
  bool dotted() {
    const std::string& key = entry_.key;
    const KnownPath* known = find_known_path(key);
    const std::size_t dot = key.rfind('.');
    if (known == nullptr || known->is_section || dot == std::string::npos) return false;
    return say("write " + key.substr(dot + 1) + " inside " + key.substr(0, dot), {key});
  }

  /// lr_scheduler: {warmup_steps: 2} for lr_schedule: the keys inside are ours.
  bool section_renamed() {
    const YamlNode& value = unknown_.tree.node(entry_.value);
    if (value.kind != YamlNode::Kind::map || value.entries.empty()) return false;
    const std::string near = nearest(entry_.key, sections());
    if (near.empty()) return false;
    std::vector<std::string> paths;
    for (const YamlEntry& inner : value.entries) {
      std::string path = joined(unknown_.section, near) + "." + inner.key;
      if (takes(unknown_.tree, path, inner.value)) paths.push_back(std::move(path));
    }
    if (2 * paths.size() <= value.entries.size()) return false;
    return say("did you mean " + near + "?", paths);
  }

  std::vector<std::string> sections() const {
    std::vector<std::string> found;
    for (const std::string& key : unknown_.known) {
      const KnownPath* known = find_known_path(joined(unknown_.section, key));
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
  /// A key of ours that is near comes first where theirs does not take the value.
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

  /// The one field of that name in another section. What lies deeper (parallel.pipeline.dtype) is
  /// not meant by a word that other projects have for something else.
  bool elsewhere() {
    std::vector<std::string> found;
    for (const std::string& path : value_paths()) {
      const bool deep = std::ranges::count(path, '.') > 1;
      if (path.substr(path.rfind('.') + 1) == entry_.key &&
          !(deep && !hint_for(entry_.key, "").text.empty()) &&
          takes(unknown_.tree, path, entry_.value)) {
        found.push_back(path);
      }
    }
    if (found.empty() || found.size() > 2) return false;
    return say(
        "did you mean " + found.front() + (found.size() > 1 ? " or " + found.back() : "") + "?",
        found);
  }

  /// For the keys of an unknown section: those that a project has there, or, `anywhere`, those that
  /// one has at all.
  bool inner_hints(bool anywhere) {
    if (!unknown_.section.empty()) return false;
    std::string text;
    std::vector<std::string> paths;
    std::size_t count = 0;
    for (const YamlEntry& inner : unknown_.tree.node(entry_.value).entries) {
      Hint one = hint_for(entry_.key + "." + inner.key, text_in(inner));
      if (one.text.empty() && anywhere) one = hint_for(inner.key, text_in(inner));
      if (one.text.empty() || ++count > most_inner_hints) continue;
      text += (text.empty() ? "" : "; ") + text_of(one);
      for (const HintValue& value : one.values) paths.push_back(value.path);
    }
    return say(text, paths);
  }

  bool nearby() {
    std::vector<std::string> fitting;
    for (const std::string& key : unknown_.known) {
      if (takes(unknown_.tree, joined(unknown_.section, key), entry_.value)) fitting.push_back(key);
    }
    const std::string near = nearest(entry_.key, fitting);
    if (near.empty()) return false;
    return say("did you mean " + near + "?", {joined(unknown_.section, near)});
  }

  /// An upstream key in the wrong section, or a misspelt one.
  bool upstream_name() {
    std::vector<std::string> names;
    for (const UpstreamKey& row : all_upstream_keys()) {
      if (row.key == entry_.key && row.section != unknown_.section) {
        return say("write " + entry_.key + " inside " + std::string(row.section));
      }
      const bool fits = row.conversion != Conversion::same ||
                        takes(unknown_.tree, std::string(row.path), entry_.value);
      if (row.section == unknown_.section && fits) names.emplace_back(row.key);
    }
    const std::string near = nearest(entry_.key, names);
    return say(near.empty() ? "" : "did you mean " + near + "?");
  }

  bool of_runner() {
    const ForeignKey* foreign = find_foreign(unknown_.section, entry_.key);
    if (foreign == nullptr) return false;
    return say(foreign->answer == ForeignKey::Answer::idle
                   ? "remove it: " + std::string(foreign->instead)
                   : help_of(*foreign));
  }

  /// All paths of values, in the order of the schema.
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

}  // namespace

UnknownKeyHelp help_for(const UnknownKey& unknown) { return KeyGuess(unknown).run(); }

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

}  // namespace trainctl
