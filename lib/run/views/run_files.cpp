#include "run/views/run_files.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "config/read/read.h"
#include "formats/print/config_values.h"
#include "run/records/event_file.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void add_values(const json& object, const std::string& before, std::map<std::string, double>& to) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_number()) to[before + key] = value.get<double>();
    if (value.is_object()) add_values(value, key + ".", to);
  }
}

std::optional<StepLine> step_of(const json& line) {
  if (!line.contains("step") || !line["step"].is_number_integer()) return std::nullopt;
  StepLine step;
  step.step = line["step"].get<std::int64_t>();
  add_values(line, "", step.values);
  step.values.erase("step");
  if (const auto time = step.values.extract("time")) step.time = time.mapped();
  return step;
}

void add_line(const std::string& text, RunFiles& run) {
  const json line = json::parse(text, nullptr, false);
  if (!line.is_object()) return;
  run.end.clear();
  if (line.contains("end") && line["end"].is_string()) {
    run.end = line["end"].get<std::string>();
    const auto reason = line.find("reason");
    if (reason != line.end() && reason->is_string() && !reason->get<std::string>().empty()) {
      run.end += " (" + reason->get<std::string>() + ")";
    }
    return;
  }
  if (auto step = step_of(line)) run.lines.push_back(std::move(*step));
}

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

std::optional<StepLine> parse_step_line(const std::string& text) {
  const json line = json::parse(text, nullptr, false);
  return line.is_object() ? step_of(line) : std::nullopt;
}

RunFiles read_run_files(const fs::path& directory) {
  RunFiles run;
  run.directory = directory;
  std::ifstream metrics(directory / "metrics.jsonl");
  require(metrics.is_open(), ExitCode::missing_input,
          directory.string() + " has no metrics.jsonl: it is not the directory of a run");
  for (std::string line; std::getline(metrics, line);) add_line(line, run);
  std::error_code failure;
  if (fs::exists(directory / "config.yaml", failure)) {
    const ReadResult read = read_config(directory / "config.yaml", {});
    run.steps = read.config.train.steps;
    for (const auto& [path, value] : config_values(read.config)) run.config[path] = value;
  }
  if (fs::exists(directory / "measured.json", failure)) {
    run.measured = text_of(directory / "measured.json");
    if (!json::accept(run.measured)) run.measured.clear();
  }
  return run;
}

void append_event(const StepLine& line, std::string& bytes) {
  std::vector<std::string> tags;
  std::vector<Scalar> scalars;
  tags.reserve(line.values.size());
  for (const auto& [key, value] : line.values) {
    tags.push_back(key);
    if (const std::size_t dot = key.find('.'); dot != std::string::npos) tags.back()[dot] = '/';
    scalars.push_back({tags.back(), value});
  }
  append_scalars(line.time, line.step, scalars, bytes);
}

std::string event_file_of(const RunFiles& run) {
  std::string bytes;
  append_file_version(run.lines.empty() ? 0 : run.lines.front().time, bytes);
  for (const StepLine& line : run.lines) append_event(line, bytes);
  return bytes;
}

}  // namespace trainctl
