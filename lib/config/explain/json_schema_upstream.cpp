#include "config/explain/json_schema_upstream.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/schema/values.h"
#include "config/support/foreign.h"
#include "config/upstream/short_sections.h"
#include "config/upstream/upstream.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

std::string described(const UpstreamKey& row) {
  std::string text = "upstream spelling of " + std::string(row.path);
  if (row.deprecated()) text += "; deprecated: write " + std::string(row.replacement);
  return text;
}

/// null says nothing for keys whose default upstream is None.
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

/// One more form of a property.
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

/// The property of a path among those of all sections, or null.
Json property_at(const Json& sections, const std::string& path) {
  const Json* properties = &sections;
  std::size_t start = 0;
  while (true) {
    const std::size_t dot = std::min(path.find('.', start), path.size());
    const std::string key = path.substr(start, dot - start);
    if (!properties->contains(key)) return nullptr;
    const Json& found = (*properties)[key];
    if (dot == path.size()) return found;
    if (!found.contains("properties")) return nullptr;
    properties = &found["properties"];
    start = dot + 1;
  }
}

const Json boolean = {{"type", "boolean"}};

/// The values of an upstream name: those of our key, as its conversion takes them.
Json values_of(const UpstreamKey& row, const Json& sections);

/// A map of further rows, in which our own names are accepted too.
Json map_of(const UpstreamKey& row, const Json& sections) {
  const Json ours = property_at(sections, std::string(row.path));
  Json properties = ours.is_null() ? Json::object() : ours["properties"];
  const std::string prefix = std::string(row.key) + ".";
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
  Json values = property_at(sections, std::string(row.path));
  switch (row.conversion) {
    case Conversion::same: break;
    case Conversion::true_is_fp16:
    case Conversion::true_is_bf16:
    case Conversion::full_batch: values = boolean; break;
    case Conversion::index_fusion: {
      const Json index = {{"type", "integer"}, {"minimum", 0}};
      values = {{"type", "array"}, {"items", index}, {"minItems", 1}};
      break;
    }
    case Conversion::recompute: {
      const Json number = {{"type", "integer"}, {"minimum", 0}};
      const Json list = {{"type", "array"}, {"items", number}, {"minItems", 1}};
      values = {{"anyOf", {boolean, list, {{"type", "null"}}}}};
      if (row.key == "recompute") {
        UpstreamKey section = row;
        section.path = "recompute";
        values["anyOf"].push_back(map_of(section, sections));
      }
      break;
    }
    case Conversion::callable:
    case Conversion::internal: values = {{"type", "null"}}; break;
    case Conversion::dict: values = map_of(row, sections); break;
  }
  if (values.is_null()) values = Json::object();
  values.erase("default");
  values["description"] = described(row);
  if (row.fallback == "null") allow_null(values);
  return values;
}

/// The values of a key that is not built: those that ask for nothing.
Json plain_values(const ForeignKey& row) {
  Json values = {nullptr, "", Json::array(), Json::object()};
  for (const std::string& word : split_words(row.plain)) {
    values.push_back(word);
    if (Json::accept(word)) values.push_back(Json::parse(word));
  }
  return values;
}

/// The key as it is written in `section`, "" where it is not.
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
      allow(properties[key], boolean);  // a section of ours whose name upstream has for a bool
    }
  }
  for (const ForeignKey& row : foreign_keys()) {
    if (row.section != section || properties.contains(row.key)) continue;
    properties[std::string(row.key)] = {{"description", "not built yet"},
                                        {"enum", plain_values(row)}};
  }
  for (const ForeignKey& row : foreign_mindformers_keys()) {
    if (row.section != section || properties.contains(row.key)) continue;
    properties[std::string(row.key)] = {{"description", "in a MindFormers file only"}};
  }
}

/// Sections that may be one word.
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

}  // namespace

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
        {"description", "MindFormers' section; its keys are taken as in " + std::string(ours)},
        {"type", {"object", "null"}},
        {"additionalProperties", false},
        {"properties", std::move(properties)}};
  }
  add_rows("", sections, ours_alone);
  add_short_sections(sections);
  return schema.dump(2) + "\n";
}

}  // namespace trainctl
