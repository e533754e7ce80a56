#include "run/views/run_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "config/read/read.h"
#include "formats/print/print.h"
#include "run/directory/lease.h"
#include "run/views/event_file.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

void add_value(const std::string& key, double value, RunFiles& run) {
  std::vector<double>& values = run.series[key];
  values.resize(run.at_step.size(), nothing);
  values.back() = value;
}

void add_end(const json& line, RunFiles& run) {
  run.end = line["end"].get<std::string>();
  const auto reason = line.find("reason");
  if (reason != line.end() && reason->is_string() && !reason->get<std::string>().empty()) {
    run.end += " (" + reason->get<std::string>() + ")";
  }
}

void add_peak(const json& line, RunFiles& run) {
  const auto peak = line.find("mfu_peak");
  if (peak == line.end() || !peak->is_object()) return;
  const auto source = peak->find("source");
  const auto flops = peak->find("flops");
  if (source != peak->end() && source->is_string()) run.mfu_source = source->get<std::string>();
  if (flops != peak->end() && flops->is_number()) run.mfu_flops = flops->get<double>();
}

/// Skips lines whose numbers of layers or experts differ from the first line's.
void add_loads(const json& lists, RunFiles& run) {
  if (!lists.is_array() || lists.empty() || !lists[0].is_array()) return;
  ExpertLoads& loads = run.loads;
  if (loads.at_step.empty()) {
    loads.layers = lists.size();
    loads.experts = lists[0].size();
  }
  std::vector<std::uint16_t> percent;
  for (const json& list : lists) {
    if (!list.is_array() || list.size() != loads.experts) return;
    for (const json& load : list) {
      const double value = load.is_number() ? load.get<double>() : 0;
      percent.push_back(static_cast<std::uint16_t>(std::clamp(value, 0.0, 65535.0)));
    }
  }
  if (lists.size() != loads.layers) return;
  loads.at_step.push_back(run.at_step.back());
  loads.percent.insert(loads.percent.end(), percent.begin(), percent.end());
}

void add_metrics_line(const std::string& text, RunFiles& run) {
  const json line = json::parse(text, nullptr, false);
  if (!line.is_object()) return;
  run.end.clear();
  if (line.contains("end") && line["end"].is_string()) return add_end(line, run);
  if (!line.contains("step") || !line["step"].is_number_integer()) return;
  run.at_step.push_back(line["step"].get<std::int64_t>());
  run.times.push_back(0);
  for (const auto& [key, value] : line.items()) {
    if (key == "step") continue;
    if (key == "time" && value.is_number()) {
      run.times.back() = value.get<double>();
    } else if (key == "skipped") {
      ++run.skipped;
    } else if (value.is_number()) {
      add_value(key, value.get<double>(), run);
    } else if ((key == "ledger" || key == "router") && value.is_object()) {
      for (const auto& [entry, number] : value.items()) {
        if (number.is_number()) add_value(key + "." + entry, number.get<double>(), run);
        if (entry == "loads") add_loads(number, run);
      }
    }
  }
  for (auto& [key, values] : run.series) values.resize(run.at_step.size(), nothing);
  add_peak(line, run);
}

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// The number of steps from plan.json, for a run with train.tokens or train.epochs; 0 if unknown.
std::int64_t planned_steps(const fs::path& directory) {
  const auto plan = nlohmann::json::parse(text_of(directory / "plan.json"), nullptr, false);
  const bool known =
      plan.is_object() && plan.contains("steps") && plan["steps"].is_number_integer();
  return known ? plan["steps"].get<std::int64_t>() : 0;
}

void read_config_values(RunFiles& run) {
  if (kind_of_file(run.directory / "config.yaml") == FileKind::none) return;
  try {
    const ReadResult read = read_config(run.directory / "config.yaml", {});
    run.steps =
        read.config.train.steps > 0 ? read.config.train.steps : planned_steps(run.directory);
    for (const auto& [path, value] : config_values(read.config)) run.config[path] = value;
  } catch (const Error&) {
    run.steps = 0;  // config.yaml has been removed or cannot be read
  }
}

}  // namespace

bool add_new_lines(const fs::path& metrics, std::uint64_t& read, RunFiles& run) {
  std::ifstream file(metrics, std::ios::binary);
  if (!file.is_open()) return false;
  file.seekg(static_cast<std::streamoff>(read));
  for (std::string line; std::getline(file, line) && !file.eof();) {
    read += line.size() + 1;
    add_metrics_line(line, run);
  }
  return true;
}

double RunFiles::last(const std::string& key) const {
  const auto found = series.find(key);
  if (found == series.end()) return nothing;
  for (auto value = found->second.rbegin(); value != found->second.rend(); ++value) {
    if (std::isfinite(*value)) return *value;
  }
  return nothing;
}

std::string RunFiles::name() const {
  const fs::path path = directory.lexically_normal();
  return path.filename().empty() ? path.parent_path().filename().string()
                                 : path.filename().string();
}

void RunReader::restart() {
  const fs::path directory = files_.directory;
  files_ = RunFiles{};
  files_.directory = directory;
  read_ = 0;
}

bool RunReader::refresh() {
  const fs::path path = files_.directory / "metrics.jsonl";
  struct stat state {};
  if (::stat(path.c_str(), &state) != 0) {
    restart();
    return false;
  }
  const auto size = static_cast<std::uint64_t>(state.st_size);
  if (state.st_ino != file_ || size < read_) restart();
  file_ = state.st_ino;
  if (files_.steps == 0) read_config_values(files_);
  return size == read_ || add_new_lines(path, read_, files_);
}

RunFiles read_run_files(const fs::path& directory) {
  RunReader reader(directory);
  const bool is_there = kind_of_file(directory / "metrics.jsonl") != FileKind::none;
  require(is_there && reader.refresh(), ExitCode::missing_input,
          directory.string() + " has no metrics.jsonl: it is not the directory of a run");
  RunFiles run = reader.files();
  if (kind_of_file(directory / "measured.json") != FileKind::none) {
    run.measured = text_of(directory / "measured.json");
    if (!json::accept(run.measured)) run.measured.clear();
  }
  return run;
}

void append_events(const RunFiles& run, std::string& bytes) {
  std::map<std::string, std::string> tags;
  for (const auto& [key, values] : run.series) {
    std::string tag = key;
    if (const std::size_t dot = key.find('.'); dot != std::string::npos) tag[dot] = '/';
    tags[key] = tag;
  }
  for (std::size_t i = 0; i < run.at_step.size(); ++i) {
    std::vector<Scalar> scalars;
    for (const auto& [key, values] : run.series) {
      if (!std::isnan(values[i])) scalars.push_back({tags[key], values[i]});
    }
    append_scalars(run.times[i], run.at_step[i], scalars, bytes);
  }
}

std::string event_file_of(const RunFiles& run) {
  std::string bytes;
  append_file_version(run.times.empty() ? 0 : run.times.front(), bytes);
  append_events(run, bytes);
  return bytes;
}

namespace {

constexpr std::size_t recent_lines = 100;
constexpr double min_silence = 30;    // seconds
constexpr double silence_factor = 3;  // multiple of the longest recent time between two lines

std::size_t first_recent(const RunFiles& run) {
  return run.times.size() > recent_lines ? run.times.size() - recent_lines : 0;
}

double longest_gap(const RunFiles& run) {
  double longest = 0;
  for (std::size_t i = first_recent(run) + 1; i < run.times.size(); ++i) {
    longest = std::max(longest, run.times[i] - run.times[i - 1]);
  }
  return longest;
}

/// The text of the last log line "DATE TIME error TEXT"; empty if there is none.
std::string last_error(const RunFiles& run) {
  std::ifstream log(run.directory / "rank-0.log");
  std::string found;
  for (std::string line; std::getline(log, line);) {
    constexpr std::string_view level = " error ";
    const std::size_t at = line.find(' ', line.find(' ') + 1);
    if (at != std::string::npos && line.compare(at, level.size(), level) == 0) {
      found = line.substr(at + level.size());
    }
  }
  return found;
}

RunState ended_without_a_word(const RunFiles& run, const std::string& how) {
  const std::string error = last_error(run);
  return {RunState::Kind::ended, "ended after step " + std::to_string(run.last_step()) + ": " +
                                     (error.empty() ? how : error)};
}

}  // namespace

double seconds_per_step(const RunFiles& run) {
  const std::size_t first = first_recent(run);
  if (run.times.size() < first + 2 || run.times[first] <= 0) return 0;
  const auto steps = static_cast<double>(run.at_step.back() - run.at_step[first]);
  return steps > 0 ? std::max(0.0, run.times.back() - run.times[first]) / steps : 0;
}

RunState state_of(const RunFiles& run, double now) {
  using Kind = RunState::Kind;
  if (!run.end.empty()) return {Kind::ended, run.end};
  if (run.steps > 0 && run.last_step() >= run.steps) return {Kind::finished, "finished"};
  const LeaseState lease = lease_state(run.directory);
  if (lease.kind == LeaseState::Kind::gone) {
    return ended_without_a_word(run, "its process " + std::to_string(lease.process) + " is gone");
  }
  if (lease.kind == LeaseState::Kind::free && !run.at_step.empty()) {
    return ended_without_a_word(run, "no process has its directory any more");
  }
  if (run.at_step.empty()) return {Kind::waiting, "no step yet"};
  const double silence = run.times.back() > 0 ? now - run.times.back() : 0;
  if (silence <= std::max(min_silence, silence_factor * longest_gap(run))) {
    return {Kind::running, "running"};
  }
  return {Kind::silent, "no line for " + format_seconds(silence)};
}

}  // namespace trainctl
