// What the files of a run say about it, while it goes on or after its end, on any machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

struct StepLine {
  std::int64_t step = 0;
  double time = 0;  // seconds since 1970; 0 in files of older versions
  /// By key of metrics.jsonl, "ledger.products" for the entries of its ledger; null values are
  /// left out.
  std::map<std::string, double> values;
};

struct RunFiles {
  std::filesystem::path directory;
  std::vector<StepLine> lines;  // of metrics.jsonl; a line that is cut off is left out
  std::string end;              // "interrupted at step 40 (SIGTERM)", if that is its last line
  std::int64_t steps = 0;       // train.steps; 0: config.yaml cannot be read
  std::map<std::string, std::string> config;  // every value of config.yaml, by its path
  std::string measured;                       // measured.json as text; empty: there is none
};

/// Nothing for a line that is not of a step.
std::optional<StepLine> parse_step_line(const std::string& text);
/// Throws Error{missing_input} if the directory has no metrics.jsonl.
RunFiles read_run_files(const std::filesystem::path& directory);

/// A line of metrics.jsonl as an event of TensorBoard, added to `bytes`.
void append_event(const StepLine& line, std::string& bytes);
/// The event file of TensorBoard with every line, as bytes.
std::string event_file_of(const RunFiles& run);

}  // namespace trainctl
