#include "run/views/report_page.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/text.h"
#include "formats/print/text.h"
#include "formats/web/page.h"
#include "plan/cost/ledger.h"
#include "run/views/run_files.h"

namespace trainctl {

// Files of this folder, embedded by lib/embed.cmake.
std::string_view embedded_report_css();
std::string_view embedded_report_js();    // curves and comparisons
std::string_view embedded_loads_js();     // a map of the experts' loads
std::string_view embedded_measured_js();  // the measured time of a step

namespace {

using nlohmann::json;

constexpr std::size_t max_points = 1000;
constexpr std::size_t max_columns = 160;  // columns in a map of the experts' loads
constexpr std::size_t max_cells = 40'000;
constexpr int digits = 5;  // significant digits of a point; more cannot be seen

json rounded(double value) {
  if (!std::isfinite(value)) return {};
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::general, digits)
                       .ptr;
  double back = 0;
  std::from_chars(text.data(), end, back);
  return back;
}

/// A point for each group of `together` neighbouring steps: the mean of their finite values.
json points_of(const std::vector<double>& values, std::size_t together) {
  json points = json::array();
  for (std::size_t begin = 0; begin < values.size(); begin += together) {
    double sum = 0;
    int count = 0;
    for (std::size_t i = begin; i < std::min(begin + together, values.size()); ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      ++count;
    }
    points.push_back(count > 0 ? rounded(sum / count) : json());
  }
  return points;
}

json series_of(const RunFiles& run) {
  const std::size_t count = run.at_step.size();
  const std::size_t together = std::max<std::size_t>(1, (count + max_points - 1) / max_points);
  json series = json::object();
  json steps = json::array();
  for (std::size_t i = 0; i < count; i += together) {
    steps.push_back(run.at_step[std::min(i + together, count) - 1]);
  }
  series["step"] = std::move(steps);
  for (const auto& [key, values] : run.series) series[key] = points_of(values, together);
  return series;
}

/// "percent" has a row for each expert of each layer, and a column for some neighbouring steps: the
/// mean of their loads.
json loads_of(const ExpertLoads& loads) {
  const std::size_t rows = loads.layers * loads.experts;
  if (rows == 0) return {};
  const std::size_t count = loads.at_step.size();
  const std::size_t columns = std::clamp<std::size_t>(max_cells / rows, 1, max_columns);
  const std::size_t together = (count + columns - 1) / columns;
  json percent(rows, json::array());
  json steps = json::array();
  for (std::size_t begin = 0; begin < count; begin += together) {
    const std::size_t end = std::min(begin + together, count);
    steps.push_back({loads.at_step[begin], loads.at_step[end - 1]});
    for (std::size_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (std::size_t i = begin; i < end; ++i) sum += loads.percent[i * rows + row];
      percent[row].push_back(std::lround(sum / static_cast<double>(end - begin)));
    }
  }
  return {{"layers", loads.layers},
          {"experts", loads.experts},
          {"steps", std::move(steps)},
          {"percent", std::move(percent)}};
}

json last_values(const RunFiles& run) {
  json last = json::object();
  for (const auto& [key, values] : run.series) {
    const double value = run.last(key);
    if (std::isfinite(value)) last[key] = value;
  }
  return last;
}

/// Planned and measured calls and bytes of all ranks by kind, the first word of a group's name.
json traffic_of(const json& ranks) {
  struct Sums {
    std::array<double, 4> values{};  // planned calls and bytes, measured calls and bytes
    bool any = false;
  };
  std::map<std::string, Sums> kinds;
  for (const json& rank : ranks) {
    for (const json& row : rank.at("communication")) {
      const auto group = row.at("group").get<std::string>();
      Sums& sums = kinds[group.substr(0, group.find(' '))];
      sums.any = true;
      std::size_t at = 0;
      for (const char* side : {"planned", "measured"}) {
        sums.values[at++] += row.at(side).at("count").get<double>();
        sums.values[at++] += row.at(side).at("bytes").get<double>();
      }
    }
  }
  json rows = json::array();
  for (const TrafficPurpose purpose : all_purposes) {
    const Sums& sums = kinds[std::string(name_of(purpose))];
    if (sums.any) rows.push_back({std::string(purpose_text(purpose)), sums.values});
  }
  return rows;
}

/// The memory of the rank that used most: [[category, planned, measured], ...].
json memory_of(const json& ranks) {
  json shown;
  double most = -1;
  for (const json& rank : ranks) {
    double total = 0;
    json rows = json::array();
    for (const auto& [category, both] : rank.at("memory").items()) {
      rows.push_back({category, both.at("planned"), both.at("measured")});
      total += both.at("measured").get<double>();
    }
    if (total <= most) continue;
    most = total;
    shown = {{"rank", rank.at("rank")}, {"rows", std::move(rows)}};
  }
  return shown;
}

/// measured.json with the sums over its ranks; null if it has another form than this program's.
json measured_of(const RunFiles& run) {
  if (run.measured.empty()) return {};
  try {
    json measured = json::parse(run.measured);
    const json ranks = measured.at("ranks");
    measured["traffic"] = traffic_of(ranks);
    measured["memory"] = memory_of(ranks);
    measured.erase("ranks");
    return measured;
  } catch (const json::exception&) {
    return {};
  }
}

json run_data(const RunFiles& run, double now) {
  json data;
  data["name"] = run.name();
  data["path"] = run.directory.string();
  data["state"] = state_of(run, now).text;
  data["steps"] = run.steps;
  data["series"] = series_of(run);
  data["loads"] = loads_of(run.loads);
  data["last"] = last_values(run);
  data["config"] = run.config;
  data["measured"] = measured_of(run);
  if (!run.mfu_source.empty()) {
    data["peak"] = {{"flops", run.mfu_flops}, {"source", run.mfu_source}};
  }
  return data;
}

}  // namespace

std::string report_page(const std::vector<RunFiles>& runs, double now) {
  json data;
  data["runs"] = json::array();
  PageContent page;
  page.title = joined(runs, ", ", &RunFiles::name);
  for (const RunFiles& run : runs) {
    data["runs"].push_back(run_data(run, now));
  }
  data["entries"] = json::array();
  for (const LedgerEntry& entry : ledger_entries) {
    data["entries"].push_back({std::string(entry.key), std::string(entry.text)});
  }
  page.kind = "report";
  page.body = page_data("data", json_text(data, JsonText::Style::compact)) +
              "<div id=\"runs\"></div>\n<div id=\"curves\"></div>\n<div id=\"loads\"></div>\n"
              "<div id=\"more\"></div>\n";
  page.style = below_each_other({embedded_report_css()});
  page.script =
      below_each_other({embedded_report_js(), embedded_loads_js(), embedded_measured_js()});
  return html_page(page);
}

}  // namespace trainctl
