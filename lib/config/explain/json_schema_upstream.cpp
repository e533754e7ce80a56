#include "config/explain/json_schema_upstream.h"

#include <nlohmann/json.hpp>

#include "config/support/foreign.h"
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
  } else if (property.contains("type") && property["type"].is_string() &&
             property["type"] != "null" && property["type"] != "object") {
    property["type"] = {property["type"], "null"};
  }
}

/// A section of ours whose name upstream has for a bool.
void allow_bool(Json& property) {
  if (property.contains("anyOf")) return;
  const Json description = property["description"];
  property.erase("description");
  const Json choice = {{"type", "boolean"}};
  property = {{"description", description}, {"anyOf", {choice, property}}};
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

void add_rows(const std::string& section, Json& properties) {
  for (const UpstreamKey& row : all_upstream_keys()) {
    const std::string key = key_in(section, row);
    if (key.empty()) continue;
    if (!properties.contains(key)) {
      properties[key] = {{"description", described(row)}};
    } else if (section + "." + key == row.path && row.fallback == "null") {
      allow_null(properties[key]);
    } else if (row.path.starts_with(section + "." + key + ".")) {
      allow_bool(properties[key]);
    }
  }
  for (const ForeignKey& row : foreign_keys()) {
    if (row.section != section || properties.contains(row.key)) continue;
    const bool later = row.answer == ForeignKey::Answer::not_built;
    properties[std::string(row.key)] = {
        {"description", later ? "not built yet" : "of MindFormers' runner; not carried over"}};
  }
}

}  // namespace

std::string with_upstream_names(const std::string& text) {
  Json schema = Json::parse(text);
  Json& sections = schema["properties"];
  for (auto& [name, section] : sections.items()) {
    if (section.contains("properties")) add_rows(name, section["properties"]);
  }
  for (const auto& [upstream, ours] : upstream_sections()) {
    Json properties = sections[std::string(ours)]["properties"];
    sections[std::string(upstream)] = {
        {"description", "MindFormers' section; its keys are taken as in " + std::string(ours)},
        {"type", {"object", "null"}},
        {"additionalProperties", false},
        {"properties", std::move(properties)}};
  }
  add_rows("", sections);
  return schema.dump(2) + "\n";
}

}  // namespace trainctl
