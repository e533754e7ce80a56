// Guesses the meaning of unknown keys and refused values; the visitor that fills a section of the
// configuration from its YAML map.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/read/read.h"
#include "config/schema/fields.h"
#include "config/schema/list_values.h"
#include "config/schema/values.h"
#include "config/upstream/upstream.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// Help for a section that has a value instead of keys, such as optimizer: adamw.
std::string help_for_section(const std::string& section, const YamlNode& value);

/// Help for a value that the key at `path` refuses: the usual meaning of such a value, else `help`,
/// which may be "".
std::string help_for_value(const YamlTree& tree, const std::string& path, int node,
                           std::string help);

// A visitor that fills a section from its YAML map: finds each key, reads and checks its value,
// records its position, and reports missing and unknown keys.

/// The state that the readers of all sections share.
struct Reading {
  YamlTree& tree;
  ReadResult& result;
  Spellings spellings{};                       // spellings of values given by upstream keys
  std::vector<std::string> named_otherwise{};  // keys of ours that an unknown key probably means
  bool model_complete = true;  // false for an unknown preset: missing model keys are not reported
  // The config.json or config.yaml of model.from, and the map node with its sections; -1 if it is
  // not given or could not be read.
  std::string model_file{};
  int model_values = -1;

  void report(Problem problem, const std::string& path, Place place);
  void missing(const std::string& path, const Field& field, const Place& place);
};

class SectionReader {
 public:
  /// `map` is the node of a map, or -1 for an absent section; `place` is that of the section.
  SectionReader(Reading& reading, int map, std::string path, Place place)
      : reading_(reading), map_(map), path_(std::move(path)), place_(std::move(place)) {}

  template <class Value>
  void operator()(Value& value, const Field& field) {
    const YamlEntry* entry = find(field);
    if (entry == nullptr) return;
    const YamlNode& node = reading_.tree.node(entry->value);
    if (field.is_internal) {
      refuse_internal(node, field);
    } else if (auto problem = read_field(reading_.tree, entry->value, field, value)) {
      problem->help =
          help_for_value(reading_.tree, path_of(field.key), entry->value, std::move(problem->help));
      reading_.report(std::move(*problem), path_of(field.key), place_of(node));
    } else {
      reading_.result.sources.record(path_of(field.key), place_of(node));
    }
  }
  void operator()(std::vector<DataSource>& sources, const Field& field);
  void operator()(std::vector<LayerEntry>& entries, const Field& field);

  template <class Section>
  void section(Section& value, const Field& field);
  /// Null counts as a section without keys.
  template <class Section>
  void section(std::optional<Section>& value, const Field& field) {
    if (find(field) != nullptr) section(value.emplace(), field);
  }

  /// Reports keys of the map that belong to no field.
  void finish();

 private:
  /// The entry of a field, or nullptr; reports a missing required field.
  const YamlEntry* find(const Field& field);
  /// Whether other keys of the section determine a required value.
  bool is_given_otherwise(const Field& field) const;
  std::string path_of(std::string_view key) const {
    return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
  }
  Place place_of(const YamlNode& node) const { return reading_.tree.place(node.span); }
  void read_source(int item, const std::string& path, DataSource& source);
  Problem unknown(const YamlEntry& entry) const;
  void refuse_internal(const YamlNode& node, const Field& field);

  Reading& reading_;
  int map_;
  std::string path_;
  Place place_;
  std::vector<std::string> known_;
};

/// Fills `value` from `node`, which must be a map or null, or -1 if the section is absent.
template <class Section>
void read_section(Reading& reading, int node, const std::string& path, const Place& place,
                  Section& value) {
  if (node >= 0 && reading.tree.node(node).kind == YamlNode::Kind::null) node = -1;
  if (node >= 0 && reading.tree.node(node).kind != YamlNode::Kind::map) {
    const YamlNode& given = reading.tree.node(node);
    Problem problem = wrong_type(given, "a map of keys");
    problem.help = help_for_section(path, given);
    reading.report(std::move(problem), path, reading.tree.place(given.span));
    return;
  }
  SectionReader reader(reading, node, path, place);
  fields(reader, value);
  reader.finish();
}

template <class Section>
void SectionReader::section(Section& value, const Field& field) {
  const YamlEntry* found = find(field);
  if (found == nullptr) {
    read_section(reading_, -1, path_of(field.key), place_, value);
    return;
  }
  const YamlEntry entry = *found;
  const Place place = reading_.tree.place(entry.key_span);
  reading_.result.sources.record(path_of(field.key), place);
  read_section(reading_, entry.value, path_of(field.key), place, value);
}

// Fills in values of the sections model and moe that the file omits, from a preset or from the
// model that training starts from: a config.json of Hugging Face, or the config.yaml of a run.

/// Adds keys of the preset or of model.from that the sections model and moe lack. Without
/// `around.load`, model.from is refused. Reports unreadable files.
void fill_model(Reading& reading, int root, const Surroundings& around);

/// Reports each key that contradicts the network described by the file of model.from, if there is
/// one. Settings of training (seq_length, dropout, initial values) may differ.
void check_model_against_file(Reading& reading);

}  // namespace trainctl
