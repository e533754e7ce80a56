#include "config/read/section_reader.h"

#include <algorithm>

#include "config/upstream/other_keys.h"
#include "config/yaml/syntax_error.h"

namespace trainctl {
namespace {

constexpr std::size_t most_suggestions = 200;
constexpr std::size_t most_inner_hints = 6;  // of the keys of an unknown section

/// Collects the dotted paths of all fields.
struct PathCollector {
  std::vector<std::string>& paths;
  std::string prefix;

  template <class Value>
  void operator()(Value&, const Field& field) {
    paths.push_back(prefix + std::string(field.key));
  }
  template <class Section>
  void section(Section& value, const Field& field) {
    PathCollector inner{paths, prefix + std::string(field.key) + "."};
    fields(inner, value);
  }
};

const std::vector<std::string>& all_paths() {
  static const std::vector<std::string> paths = [] {
    std::vector<std::string> found;
    PathCollector collector{found, ""};
    const Config config;
    fields(collector, config);
    return found;
  }();
  return paths;
}

/// The path of a field of that name in another section, or "".
std::string elsewhere(const std::string& key) {
  for (const std::string& path : all_paths()) {
    if (path.ends_with("." + key)) return path;
  }
  return "";
}

/// "write x inside parallel" for an upstream key in the wrong section, or "".
std::string home_of(const std::string& key) {
  for (const UpstreamKey& row : all_upstream_keys()) {
    if (row.key == key) return "write " + key + " inside " + std::string(row.section);
  }
  return "";
}

std::vector<std::string> upstream_names() {
  std::vector<std::string> names;
  for (const UpstreamKey& row : all_upstream_keys()) names.emplace_back(row.key);
  return names;
}

}  // namespace

void Reading::report(Problem problem, const std::string& path, Place place) {
  result.diagnostics.add({Severity::error, std::move(problem.code), path,
                          std::move(problem.message), std::move(problem.help), std::move(place)});
}

void Reading::missing(const std::string& path, const Field& field, const Place& place) {
  if (!model_complete && path.starts_with("model.")) return;
  report({"missing-key", "required key is missing (" + std::string(field.meaning) + ")",
          "add " + path + (path.starts_with("model.") ? ", or choose a model.preset" : "")},
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
    read_source(items[i], path + "." + std::to_string(i), sources.emplace_back());
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

std::string SectionReader::hint_from_others(const YamlEntry& entry) const {
  const YamlTree& tree = reading_.tree;
  const auto scalar = [&](const YamlEntry& one) { return tree.node(one.value).scalar; };
  const auto take = [&](const Hint& hint) {
    if (!hint.path.empty()) reading_.named_otherwise.push_back(hint.path);
    return hint.text;
  };
  std::string hint = take(hint_for(path_, entry.key, scalar(entry)));
  if (!hint.empty() || !path_.empty()) return hint;
  std::size_t count = 0;
  for (const YamlEntry& inner : tree.node(entry.value).entries) {
    const Hint one = hint_for(entry.key, inner.key, scalar(inner));
    if (one.text.empty() || ++count > most_inner_hints) continue;
    hint += (hint.empty() ? "" : "; ") + take(one);
  }
  return hint;
}

Problem SectionReader::unknown(const YamlEntry& entry) const {
  const std::string& key = entry.key;
  Problem problem{"unknown-key", "unknown key \"" + shown(key) + "\" in " + path_, ""};
  if (path_.empty()) problem.message = "unknown section \"" + shown(key) + "\"";
  const std::size_t behind = missing_space(key);
  if (behind > 0 && reading_.tree.node(entry.value).kind == YamlNode::Kind::null) {
    problem.message += "; missing space after the colon";
    problem.help = "write `" + key.substr(0, behind) + " " + shown(key.substr(behind)) + "`";
    return problem;
  }
  if (reading_.result.diagnostics.list().size() > most_suggestions) return problem;
  const auto& paths = all_paths();
  if (std::find(paths.begin(), paths.end(), key) != paths.end()) {
    const std::size_t dot = key.rfind('.');
    problem.help = "write " + key.substr(dot + 1) + " inside " + key.substr(0, dot);
    reading_.named_otherwise.push_back(key);
    return problem;
  }
  std::string near = elsewhere(key);
  problem.help = hint_from_others(entry);
  const bool is_ours = !near.empty() && problem.help.find(near) != std::string::npos;
  if (!problem.help.empty() && !is_ours) return problem;
  if (near.empty()) problem.help = home_of(key);
  if (!problem.help.empty() && !is_ours) return problem;
  if (!near.empty()) {
    reading_.named_otherwise.push_back(near);
  } else if (near = nearest(key, known_); !near.empty()) {
    reading_.named_otherwise.push_back(path_of(near));
  }
  if (near.empty() && path_ == "parallel") near = nearest(key, upstream_names());
  if (!near.empty()) problem.help = "did you mean " + near + "?";
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

}  // namespace trainctl
