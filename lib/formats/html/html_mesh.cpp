#include <algorithm>

#include "base/units.h"
#include "formats/html/html_parts.h"
#include "formats/json_text.h"
#include "formats/print/text.h"
#include "plan/tables/mesh.h"

namespace trainctl {

namespace {

constexpr std::int64_t most_cells = 512;

/// The ranks that are drawn: all, or the first ones of each stage.
std::vector<std::vector<int>> shown_ranks(const Mesh& mesh) {
  std::vector<std::vector<int>> stages;
  const std::int64_t each = std::max<std::int64_t>(1, most_cells / mesh.pp);
  for (int stage = 0; stage < static_cast<int>(std::min(mesh.pp, most_cells)); ++stage) {
    std::vector<int> ranks = ranks_of_stage(mesh, stage);
    if (static_cast<std::int64_t>(ranks.size()) > each) {
      ranks.resize(static_cast<std::size_t>(each));
    }
    stages.push_back(std::move(ranks));
  }
  return stages;
}

std::string place_of(const Mesh& mesh, int rank) {
  std::string text;
  for (const auto& [name, axis] : public_axes()) {
    if (mesh.size(axis) == 1) continue;
    text += (text.empty() ? "" : ", ") + std::string(name) + " " +
            std::to_string(mesh.coordinate(rank, axis));
  }
  return text.empty() ? "the only one" : text;
}

/// One kind: how many groups of which sizes, and the group of each drawn rank (-1: none).
void write_kind(JsonText& json, const std::string& name, const RankLists& lists,
                const std::vector<int>& shown, std::int64_t world) {
  std::vector<int> group_of(static_cast<std::size_t>(world), -1);
  std::size_t least = lists.front().size();
  std::size_t most = least;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    least = std::min(least, lists[i].size());
    most = std::max(most, lists[i].size());
    for (const int rank : lists[i]) group_of[static_cast<std::size_t>(rank)] = static_cast<int>(i);
  }
  std::vector<int> of;
  for (const int rank : shown) of.push_back(group_of[static_cast<std::size_t>(rank)]);
  json.open_object(JsonText::Form::one_line);
  json.member("name", name);
  json.member("count", static_cast<std::int64_t>(lists.size()));
  json.member("least", static_cast<std::int64_t>(least));
  json.member("most", static_cast<std::int64_t>(most));
  json.member("first", fold_ranks(lists.front()));
  json.member("of", of);
  json.close();
}

std::string groups_data(const PrintInput& input, const std::vector<std::vector<int>>& stages,
                        const std::vector<int>& shown) {
  const Mesh& mesh = input.plan.mesh;
  JsonText json;
  json.open_object();
  json.member("world", mesh.world_size());
  json.member("ranks", shown);
  std::vector<int> lengths;
  for (const std::vector<int>& ranks : stages) lengths.push_back(static_cast<int>(ranks.size()));
  json.member("lengths", lengths);
  std::vector<std::string> places;
  for (const int rank : shown) places.push_back(place_of(mesh, rank));
  json.member("places", places);
  json.key("kinds").open_array();
  for (const std::string& kind : printable_kinds(input)) {
    if (kind == "hierarchical_cp") continue;
    write_kind(json, kind, list_groups(mesh, kind), shown, mesh.world_size());
  }
  const auto* config = input.config;
  if (config != nullptr && config->parallel.hierarchical_context_parallel_sizes) {
    int level = 0;
    for (const RankLists& lists :
         hierarchical_groups(mesh, *config->parallel.hierarchical_context_parallel_sizes)) {
      write_kind(json, "cp level " + std::to_string(level++), lists, shown, mesh.world_size());
    }
  }
  json.close();
  json.close();
  return page_data("groups", json.take());
}

}  // namespace

std::string mesh_html(const PrintInput& input) {
  const Mesh& mesh = input.plan.mesh;
  const std::vector<std::vector<int>> stages = shown_ranks(mesh);
  std::vector<int> shown;
  for (const std::vector<int>& ranks : stages)
    shown.insert(shown.end(), ranks.begin(), ranks.end());
  std::string note =
      "Ranks of one group share a colour (there are eight). Choose a rank to see its group. "
      "Order " +
      order_text(mesh.order) + ".";
  if (static_cast<std::int64_t>(shown.size()) < mesh.world_size()) {
    note += " The first " + format_grouped(static_cast<std::int64_t>(stages.front().size())) +
            " ranks of each stage are drawn, " +
            format_grouped(static_cast<std::int64_t>(shown.size())) + " of " +
            format_grouped(mesh.world_size()) + ".";
  }
  return "<section id=\"mesh\">\n<h2>Mesh</h2>\n<p>" + escaped(note) +
         "</p>\n<div id=\"kinds\" class=\"tools\" role=\"group\" aria-label=\"kind of "
         "group\"></div>\n<div class=\"tools\"><label for=\"rank\">rank</label>"
         "<input id=\"rank\" type=\"number\" min=\"0\" max=\"" +
         std::to_string(mesh.world_size() - 1) +
         "\"></div>\n<div id=\"cells\"></div>\n"
         "<div id=\"about-group\" class=\"value\" aria-live=\"polite\"></div>\n" +
         groups_data(input, stages, shown) + "</section>\n";
}

}  // namespace trainctl
