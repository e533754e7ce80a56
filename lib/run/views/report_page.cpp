#include "run/views/report_page.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "plan/cost/ledger.h"

namespace trainctl {

namespace {

using nlohmann::json;

constexpr std::size_t most_points = 1000;
constexpr int digits = 5;  // of a point: more cannot be seen

json rounded(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::general, digits)
                       .ptr;
  double back = 0;
  std::from_chars(text.data(), end, back);
  return back;
}

/// One point for each group of neighbouring steps: the mean of the values that are there.
json points_of(const RunFiles& run, const std::string& key, std::size_t together) {
  json points = json::array();
  for (std::size_t begin = 0; begin < run.lines.size(); begin += together) {
    double sum = 0;
    int count = 0;
    for (std::size_t i = begin; i < std::min(begin + together, run.lines.size()); ++i) {
      const auto value = run.lines[i].values.find(key);
      if (value == run.lines[i].values.end()) continue;
      sum += value->second;
      ++count;
    }
    points.push_back(count > 0 ? rounded(sum / count) : json());
  }
  return points;
}

json series_of(const RunFiles& run) {
  const std::size_t together = (run.lines.size() + most_points - 1) / most_points;
  std::set<std::string> keys;
  for (const StepLine& line : run.lines) {
    for (const auto& value : line.values) keys.insert(value.first);
  }
  json series = json::object();
  json steps = json::array();
  for (std::size_t i = 0; i < run.lines.size(); i += together) {
    steps.push_back(run.lines[std::min(i + together, run.lines.size()) - 1].step);
  }
  series["step"] = std::move(steps);
  for (const std::string& key : keys) series[key] = points_of(run, key, together);
  return series;
}

json last_values(const RunFiles& run) {
  json last = json::object();
  for (const StepLine& line : run.lines) {
    for (const auto& [key, value] : line.values) last[key] = value;
  }
  return last;
}

json run_data(const RunFiles& run) {
  json data;
  data["name"] = run.directory.filename().empty() ? run.directory.parent_path().filename().string()
                                                  : run.directory.filename().string();
  data["path"] = run.directory.string();
  data["end"] = run.end;
  data["steps"] = run.steps;
  data["series"] = series_of(run);
  data["last"] = last_values(run);
  data["config"] = run.config;
  data["measured"] = run.measured.empty() ? json() : json::parse(run.measured);
  if (!data["measured"].is_null()) data["measured"].erase("ranks");  // calls, bytes and memory
  return data;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char letter : text) {
    if (letter == '<') {
      safe += "&lt;";
    } else if (letter == '&') {
      safe += "&amp;";
    } else {
      safe += letter;
    }
  }
  return safe;
}

}  // namespace

std::string report_page(const std::vector<RunFiles>& runs) {
  json data;
  data["runs"] = json::array();
  std::string title;
  for (const RunFiles& run : runs) {
    data["runs"].push_back(run_data(run));
    title += (title.empty() ? "" : ", ") + data["runs"].back()["name"].get<std::string>();
  }
  data["entries"] = json::array();
  for (const LedgerEntry& entry : ledger_entries) {
    data["entries"].push_back({std::string(entry.key), std::string(entry.text)});
  }
  std::string text = data.dump(-1, ' ', false, json::error_handler_t::replace);
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) {
    text.replace(at, 1, "\\u003c");  // nothing in it ends the script
  }
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      escaped(title) + " - report</title>\n<style>";
  page += report_style();
  page += "</style>\n</head>\n<body>\n<main>\n<h1>" + escaped(title) +
          "</h1>\n<div id=\"runs\"></div>\n<div id=\"curves\"></div>\n<div id=\"more\"></div>\n"
          "</main>\n<script id=\"data\" type=\"application/json\">" +
          text + "</script>\n<script>";
  page += report_script();
  return page + "</script>\n</body>\n</html>\n";
}

}  // namespace trainctl
