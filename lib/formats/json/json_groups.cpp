#include "base/error.h"
#include "config/report/render_json.h"
#include "formats/json/json_parts.h"
#include "formats/print/text.h"
#include "plan/tables/mesh.h"

namespace trainctl {

namespace {

void write_lists(JsonText& json, const RankLists& lists) {
  json.open_array();
  for (const std::vector<int>& ranks : lists) json.value(ranks);
  json.close();
}

void write_kind(JsonText& json, const PrintInput& input, const std::string& kind) {
  json.key(kind);
  const Mesh& mesh = input.plan.mesh;
  if (kind == "hierarchical_cp") {
    json.open_array();
    for (const RankLists& level : hierarchical_lists(input)) write_lists(json, level);
    json.close();
  } else {
    write_lists(json,
                input.rank >= 0 ? groups_with(mesh, kind, input.rank) : list_groups(mesh, kind));
  }
}

}  // namespace

void write_groups(JsonText& json, const PrintInput& input, const std::vector<std::string>& kinds) {
  json.key("groups").open_object();
  for (const std::string& kind : kinds) write_kind(json, input, kind);
  json.close();
}

std::string print_groups_json(const PrintInput& input, const std::string& kind) {
  check_rank(input);
  check_kind(input, kind);
  JsonText json;
  json.open_object();
  json.member("format_version", 2);
  json.member("world_size", input.plan.mesh.world_size());
  write_groups(json, input, {kind});
  if (input.diagnostics != nullptr) json.json_member("diagnostics", json_rows(*input.diagnostics));
  json.close();
  return json.take();
}

}  // namespace trainctl
