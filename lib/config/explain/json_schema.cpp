#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "base/text.h"
#include "config/explain/reference.h"
#include "config/read/read.h"
#include "config/schema/describe.h"
#include "config/schema/fields.h"
#include "config/schema/list_values.h"
#include "config/schema/presets.h"
#include "config/schema/values.h"
#include "config/support/standing.h"
#include "config/upstream/upstream.h"

namespace trainctl {

// Extends the JSON Schema so that editors accept upstream spellings.

namespace {

using Json = nlohmann::ordered_json;

std::string described(const UpstreamKey& row) {
  std::string text = formatted("upstream spelling of {}", row.path);
  if (row.deprecated()) text += formatted("; deprecated: write {}", row.replacement);
  return text;
}

/// Allows null for a key whose upstream default is None; null then has no effect.
void allow_null(Json& property) {
  if (property.contains("enum")) {
    property["enum"].push_back(nullptr);
  } else if (property.contains("anyOf")) {
    property["anyOf"].push_back({{"type", "null"}});
  } else if (property.contains("type") && property["type"].is_string() &&
             property["type"] != "null" && property["type"] != "object") {
    property["type"] = {property["type"], "null"};
  } else if (property.contains("type") && property["type"].is_array()) {
    property["type"].push_back("null");
  }
}

/// Allows `other` as a further form of a property.
void allow(Json& property, const Json& other) {
  const Json description = property["description"];
  property.erase("description");
  if (property.contains("anyOf")) {
    property["anyOf"].push_back(other);
    property["description"] = description;
    return;
  }
  property = {{"description", description}, {"anyOf", {other, property}}};
}

/// The schema of the value at a path; null if there is none.
Json property_at(const Json& sections, std::string_view path) {
  const Json* properties = &sections;
  while (true) {
    const std::string key(take_until(path, "."));
    if (!properties->contains(key)) return nullptr;
    const Json& found = (*properties)[key];
    if (path.empty()) return found;
    if (!found.contains("properties")) return nullptr;
    properties = &found["properties"];
  }
}

const Json boolean = {{"type", "boolean"}};

/// The allowed values of an upstream key: those of our key, changed by the key's conversion.
Json values_of(const UpstreamKey& row, const Json& sections);

/// A map whose keys have rows of their own; also accepts our names of these keys.
Json map_of(const UpstreamKey& row, const Json& sections) {
  const Json ours = property_at(sections, row.path);
  Json properties = ours.is_null() ? Json::object() : ours["properties"];
  const std::string prefix = formatted("{}.", row.key);
  for (const UpstreamKey& inner : all_upstream_keys()) {
    const std::string key(inner.key.substr(std::min(prefix.size(), inner.key.size())));
    if (!inner.key.starts_with(prefix) || key.find('.') != std::string::npos) continue;
    properties[key] = values_of(inner, sections);
  }
  return {{"type", {"object", "null"}},
          {"additionalProperties", false},
          {"properties", std::move(properties)}};
}

Json values_of(const UpstreamKey& row, const Json& sections) {
  Json values = property_at(sections, row.path);
  const Conversion how = row.conversion;
  const Json number = {{"type", "integer"}, {"minimum", 0}};
  const Json list = {{"type", "array"}, {"items", number}, {"minItems", 1}};
  if (how == "true_is_fp16" || how == "true_is_bf16" || how == "full_batch") {
    values = boolean;
  } else if (how == "index_fusion") {
    values = list;
  } else if (how == "recompute") {
    values = {{"anyOf", {boolean, list, {{"type", "null"}}}}};
    if (row.key == "recompute") {
      UpstreamKey section = row;
      section.path = "recompute";
      values["anyOf"].push_back(map_of(section, sections));
    }
  } else if (how == "callable" || how == "internal") {
    values = {{"type", "null"}};
  } else if (how == "dict") {
    values = map_of(row, sections);
  }
  if (values.is_null()) values = Json::object();
  values.erase("default");
  values["description"] = described(row);
  if (row.fallback == "null") allow_null(values);
  return values;
}

/// The allowed values of a key that is not built: only those that ask for nothing.
Json plain_values(const ForeignKey& row) {
  Json values = {nullptr, "", Json::array(), Json::object()};
  for (const std::string& word : split_words(row.plain)) {
    values.push_back(word);
    if (Json::accept(word)) values.push_back(Json::parse(word));
  }
  return values;
}

/// The name of a row's key inside `section`; "" if it does not belong there.
std::string key_in(std::string_view section, const UpstreamKey& row) {
  constexpr std::string_view recompute = "recompute.";
  const bool here = section == "parallel" || section == row.section ||
                    section == row.path.substr(0, row.path.find('.'));
  if (here && row.key.find('.') == std::string_view::npos) return std::string(row.key);
  const bool takes_recompute = section == "recompute" || section == "parallel";
  if (!takes_recompute || !row.key.starts_with(recompute)) return "";
  return std::string(row.key.substr(recompute.size()));
}

void add_rows(const std::string& section, Json& properties, const Json& sections) {
  for (const UpstreamKey& row : all_upstream_keys()) {
    const std::string key = key_in(section, row);
    if (key.empty()) continue;
    if (!properties.contains(key)) {
      properties[key] = values_of(row, sections);
    } else if (section + "." + key == row.path && row.fallback == "null") {
      allow_null(properties[key]);
    } else if (row.path.starts_with(section + "." + key + ".")) {
      allow(properties[key], boolean);  // our section of that name is a bool upstream
    }
  }
  for (const ForeignKey& row : foreign_keys()) {
    if (row.section != section || properties.contains(row.key)) continue;
    Json& property = properties[std::string(row.key)];
    if (row.answer == "not_built") {
      property = {{"description", "not built yet"}, {"enum", plain_values(row)}};
    } else {
      property = {{"description", "in a MindFormers file only"}};
    }
  }
}

/// Allows a single word for each section that has a short form.
void add_short_sections(Json& sections) {
  for (auto& [name, section] : sections.items()) {
    const std::string key(short_key(name));
    if (key.empty()) continue;
    Json word = section["properties"][key];
    word.erase("default");
    word.erase("description");
    allow(section, word);
    if (name == "recompute") allow(section, boolean);
  }
}

/// Adds the upstream names, with descriptions, to the properties of the root and of each section in
/// the schema, which is a JSON document.
std::string with_upstream_names(const std::string& text) {
  Json schema = Json::parse(text);
  Json& sections = schema["properties"];
  const Json ours_alone = sections;
  for (auto& [name, section] : sections.items()) {
    if (section.contains("properties")) add_rows(name, section["properties"], ours_alone);
  }
  for (const auto& [upstream, ours] : upstream_sections()) {
    Json properties = sections[std::string(ours)]["properties"];
    sections[std::string(upstream)] = {
        {"description", formatted("MindFormers' section; its keys are taken as in {}", ours)},
        {"type", {"object", "null"}},
        {"additionalProperties", false},
        {"properties", std::move(properties)}};
  }
  add_rows("", sections, ours_alone);
  add_short_sections(sections);
  return json_text(schema, JsonText::Style::indent_2) + "\n";
}

using Json = nlohmann::ordered_json;

Json number_or_whole(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

void add_range(Json& schema, const Bounds& range) {
  if (range.has_least()) {
    schema[range.above_least ? "exclusiveMinimum" : "minimum"] = number_or_whole(range.least);
  }
  if (range.has_most()) {
    schema[range.below_most ? "exclusiveMaximum" : "maximum"] = number_or_whole(range.most);
  }
}

/// A regular expression for words such as "byte|sentencepiece:".
std::string pattern_of(std::string_view words) {
  std::string pattern;
  for (const std::string& word : split_words(words)) {
    pattern += (pattern.empty() ? "^(" : "|") + word + (word.ends_with(':') ? ".+" : "");
  }
  return pattern + ")$";
}

Json list_of(Json item) { return {{"type", "array"}, {"items", std::move(item)}, {"minItems", 1}}; }

/// Accepts a number, or a text of a number with a unit.
Json with_units(Json number, Unit unit) {
  if (unit == "none") return number;
  const char* pattern = unit == "count" ? "^(0|[1-9][0-9]*)(\\.[0-9]{1,3})?(k|K|M|B)$"
                                        : "^(0|[1-9][0-9]*)(\\.[0-9]+)? *(MiB|GiB|TiB|MB|GB|TB)$";
  const Json text = {{"type", "string"}, {"pattern", pattern}};
  return {{"anyOf", {std::move(number), text}}};
}

Json whole_from(std::int64_t least) { return {{"type", "integer"}, {"minimum", least}}; }

/// A word as YAML reads it: 0 is a number, and true is a bool.
Json json_word(std::string_view word) {
  if (word == "true" || word == "false") return word == "true";
  const bool digits = word.find_first_not_of("0123456789") == std::string_view::npos;
  return digits ? Json(std::stoi(std::string(word))) : Json(word);
}

/// The words of a choice and their types. An integer type excludes 0.0 where words are integers.
Json word_schema(std::span<const Word> words) {
  Json types = Json::array();
  Json all = Json::array();
  for (const Word& word : words) {
    const Json value = json_word(word.text);
    const char* type = value.is_boolean() ? "boolean" : value.is_number() ? "integer" : "string";
    if (std::ranges::find(types, type) == types.end()) types.push_back(type);
    all.push_back(value);
  }
  if (types.size() == 1) return {{"enum", std::move(all)}};
  return {{"type", std::move(types)}, {"enum", std::move(all)}};
}

Json levels_schema() {
  const Json level = {{"type", "object"},
                      {"additionalProperties", false},
                      {"required", {"name"}},
                      {"properties",
                       {{"name", {{"type", {"string", "number", "boolean"}}, {"minLength", 1}}},
                        {"ranks", whole_from(2)},
                        {"bandwidth", {{"type", "number"}, {"exclusiveMinimum", 0}}},
                        {"latency", {{"type", "number"}, {"minimum", 0}}},
                        {"oversubscription", {{"type", "number"}, {"minimum", 1}}},
                        {"links", whole_from(1)}}}};
  return {{"type", "array"}, {"items", level}};
}

Json groups_schema() {
  const Json pattern = {{"type", "string"}, {"minLength", 1}};
  const Json factor = {{"type", "number"}, {"minimum", 0}};
  const Json entry = {{"type", "object"},
                      {"additionalProperties", false},
                      {"required", {"match"}},
                      {"properties",
                       {{"match", {{"anyOf", {pattern, list_of(pattern)}}}},
                        {"type", word_schema(words_of<OptimizerType>)},
                        {"lr_mult", factor},
                        {"wd_mult", factor}}}};
  return {{"type", "array"}, {"items", entry}, {"maxItems", max_optimizer_groups}};
}

template <class Value>
Json list_schema(const Field& field) {
  if constexpr (std::is_same_v<Value, IntList>) {
    Json item = {{"type", "integer"}};
    add_range(item, field.range);
    item = with_units(item, field.unit);
    const Json tuple = {{"type", "string"}, {"pattern", "^\\([^(]*$"}};
    return {{"anyOf", {item, list_of(item), tuple}}};
  } else if constexpr (std::is_same_v<Value, NumberList>) {
    Json item = {{"type", "number"}};
    add_range(item, field.range);
    const Json tuple = {{"type", "string"}, {"pattern", "^\\([^(]*$"}};
    return {{"anyOf", {item, list_of(item), tuple}}};
  } else if constexpr (std::is_same_v<Value, DatasetSplit>) {
    const Json word = {{"enum", {"data_parallel", "full_batch"}}};
    const Json tuples = {{"type", "string"}, {"pattern", "^\\( *\\("}};
    return {{"anyOf", {word, list_of(list_of(whole_from(1))), tuples}}};
  } else if constexpr (std::is_same_v<Value, CpCommTypes>) {
    std::string words;
    for (const Word& word : words_of<CpCommType>) {
      for (const char c : std::string((words.empty() ? "" : "|") + std::string(word.text))) {
        words += c == '+' ? std::string("\\+") : std::string(1, c);
      }
    }
    const std::string entry = "(" + words + ")(\\*[0-9]+)?";
    const auto text = [](const std::string& pattern) {
      return Json{{"type", "string"}, {"pattern", "^" + pattern + "$"}};
    };
    return {{"anyOf", {text(entry + "( *, *" + entry + ")*,?"), list_of(text(entry))}}};
  } else if constexpr (std::is_same_v<Value, NetworkLevels>) {
    return levels_schema();
  } else if constexpr (std::is_same_v<Value, OptimizerGroups>) {
    return groups_schema();
  } else if constexpr (std::is_same_v<Value, MuonCoefficients>) {
    Json triple = list_of({{"type", "number"}});
    triple["minItems"] = triple["maxItems"] = 3;
    Json list = list_of(std::move(triple));
    list["maxItems"] = 100;
    return {{"anyOf", {word_schema(words_of<MuonSet>), std::move(list)}}};
  } else if constexpr (std::is_same_v<Value, MuonItems>) {
    return {{"type", "array"}, {"uniqueItems", true}, {"items", word_schema(words_of<MuonItem>)}};
  } else {
    const Json nothing = {{"type", "null"}};
    return {{"anyOf", {nothing, whole_from(1), list_of(whole_from(0))}}};
  }
}

template <class Value>
Json type_schema(const Field& field) {
  Json schema;
  if constexpr (ListValue<Value>) return list_schema<Value>(field);
  if constexpr (IsChoice<Value>) {
    return word_schema(words_of<Value>);
  } else if constexpr (std::is_same_v<Value, bool>) {
    schema["type"] = "boolean";
  } else if constexpr (std::is_integral_v<Value>) {
    schema["type"] = "integer";
    if (std::is_unsigned_v<Value>) schema["minimum"] = 0;
    add_range(schema, field.range);
    schema = with_units(schema, field.unit);
  } else if constexpr (std::is_floating_point_v<Value>) {
    schema["type"] = "number";
    add_range(schema, field.range);
    schema = with_units(schema, field.unit);
  } else {
    // YAML reads any scalar as a text here: `dir: 4` means the directory 4.
    schema["type"] = {"string", "number", "boolean"};
    if (!field.string_words.empty()) schema["type"] = "string";
    if (field.range.has_least()) schema["minLength"] = number_or_whole(field.range.least);
    if (!field.string_words.empty()) schema["pattern"] = pattern_of(field.string_words);
  }
  return schema;
}

/// `path` is the prefix of the section's keys: "" or ending in ".".
template <class Section>
Json section_schema(const Section& value, const std::string& path);

/// The visitor that writes the schema of one section.
class SchemaWriter {
 public:
  explicit SchemaWriter(std::string path) : path_(std::move(path)) {}

  template <class Value>
  void operator()(const Value& value, const Field& field) {
    Json schema = type_schema<Value>(field);
    if (!field.is_required) {
      if constexpr (IsChoice<Value>) {
        schema["default"] = json_word(word_of(value));
      } else if constexpr (std::is_same_v<Value, DatasetSplit>) {
        schema["default"] = value.word;
      } else if constexpr (std::is_same_v<Value, FusionValue>) {
        schema["default"] = nullptr;
      } else if constexpr (std::is_same_v<Value, CpCommTypes>) {
        schema["default"] = write_value(value);
      } else if constexpr (std::is_same_v<Value, NetworkLevels> ||
                           std::is_same_v<Value, OptimizerGroups> ||
                           std::is_same_v<Value, MuonItems>) {
        schema["default"] = Json::array();
      } else if constexpr (std::is_same_v<Value, MuonCoefficients>) {
        schema["default"] = write_value(value);
      } else {
        schema["default"] = value;
      }
    }
    add(field, std::move(schema));
  }
  template <class Value>
  void operator()(const std::optional<Value>&, const Field& field) {
    Json schema = type_schema<Value>(field);
    if (field.key == "preset") schema["enum"] = preset_names();
    if (field.is_internal) schema = {{"type", "null"}};
    add(field, std::move(schema), formatted("; default: {}", field.unset_note));
  }
  void operator()(const std::vector<DataSource>&, const Field& field) {
    const Json path = {{"type", {"string", "number", "boolean"}}, {"minLength", 1}};
    const Json item = {{"anyOf", {path, section_schema(DataSource{}, path_)}}};
    const Json list = {{"type", "array"}, {"items", item}, {"minItems", 1}};
    add(field, {{"anyOf", {path, list}}});
  }
  void operator()(const std::vector<LayerEntry>&, const Field& field) {
    add(field, {{"type", {"array", "null"}},
                {"items", section_schema(LayerEntry{}, path_)},
                {"maxItems", max_kinds},
                {"default", Json::array()}});
  }
  template <class Section>
  void section(const std::optional<Section>&, const Field& field) {
    section(Section{}, field);
  }
  template <class Section>
  void section(const Section& value, const Field& field) {
    Json schema = section_schema(value, formatted("{}{}.", path_, field.key));
    const bool asks =
        schema.contains("required") || schema.contains("anyOf") || schema.contains("allOf");
    if (asks) {
      required_.push_back(field.key);
    } else {
      schema["type"] = {"object", "null"};  // null means a section without keys
    }
    add(field, std::move(schema));
  }

  Json result(bool preset_suffices) && {
    Json schema = {{"type", "object"}, {"additionalProperties", false}};
    schema["properties"] = std::move(properties_);
    if (preset_suffices) {
      schema["anyOf"] = {
          {{"required", {"preset"}}}, {{"required", {"from"}}}, {{"required", required_}}};
    } else if (!required_.empty()) {
      schema["required"] = required_;
    }
    if (!ways_.empty()) schema["allOf"] = ways_;
    return schema;
  }

 private:
  void add(const Field& field, Json schema, const std::string& more = "") {
    Json described = {{"description", meaning_of(path_ + std::string(field.key), field) + more}};
    described.update(schema);
    properties_[std::string(field.key)] = std::move(described);
    if (!field.is_required) return;
    if (field.given_by.empty()) {
      required_.push_back(field.key);
    } else {
      ways_.push_back({{"anyOf", ways_to_give(field)}});
    }
  }

  static Json ways_to_give(const Field& field) {
    Json ways = Json::array();
    ways.push_back({{"required", {field.key}}});
    for (const std::string& keys : split_words(field.given_by)) {
      ways.push_back({{"required", split_at(keys, '+')}});
    }
    return ways;
  }

  std::string path_;  // prefix of the keys: "" or ends in "."
  Json properties_ = Json::object();
  Json required_ = Json::array();
  Json ways_ = Json::array();  // alternatives for each required key that other keys may determine
};

template <class Section>
Json section_schema(const Section& value, const std::string& path) {
  SchemaWriter writer(path);
  fields(writer, value);
  return std::move(writer).result(std::is_same_v<Section, ModelConfig>);
}

}  // namespace

std::string json_schema() {
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", "trainctl configuration"}};
  schema.update(section_schema(Config{}, ""));
  return with_upstream_names(json_text(schema, JsonText::Style::compact));
}

}  // namespace trainctl
