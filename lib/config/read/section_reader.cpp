#include "config/read/section_reader.h"

#include <algorithm>

#include "config/read/unknown_key.h"
#include "config/yaml/syntax_error.h"

namespace trainctl {
namespace {

constexpr std::size_t most_suggestions = 200;

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
  report({"missing-key", "required key is missing (" + std::string(field.meaning) + ")",
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
    read_source(items[i], path + "." + std::to_string(i), sources.emplace_back());
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
  if (std::ssize(items) > most_kinds) {
    reading_.report({"out-of-range",
                     "expected at most " + std::to_string(most_kinds) + " kinds of layers, found " +
                         std::to_string(items.size()),
                     "give each kind once, with its count, or write layer_pattern"},
                    path, place_of(node));
    return;
  }
  reading_.result.sources.record(path, place_of(node));
  for (std::size_t i = 0; i < items.size(); ++i) {
    read_section(reading_, items[i], path + "." + std::to_string(i),
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
    if (odd.bytes > 0) problem.message += ", where " + std::string(odd.name) + " is";
    problem.help =
        "write `" + key.substr(0, behind) + " " + shown(key.substr(behind + odd.bytes)) + "`";
    return problem;
  }
  if (reading_.result.diagnostics.list().size() > most_suggestions) return problem;
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

}  // namespace trainctl
