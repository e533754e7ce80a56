// Reads the files of a run back, during the run or after its end, on any machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trainctl {

/// How often each expert of each layer was chosen, in percent of the mean of its layer.
struct ExpertLoads {
  std::size_t layers = 0;
  std::size_t experts = 0;
  std::vector<std::int64_t> at_step;
  std::vector<std::uint16_t> percent;  // [at_step, layers, experts]
};

struct RunFiles {
  std::filesystem::path directory;
  // One entry in each of the next two for each step line of metrics.jsonl.
  std::vector<std::int64_t> at_step;
  std::vector<double> times;  // seconds since 1970; 0 in files of older versions
  /// Values by key of metrics.jsonl, with "ledger.products" and so on for the entries of its ledger
  /// and "router.load" and so on for the entries of its routers; NaN where a line has none or null.
  std::map<std::string, std::vector<double>> series;
  ExpertLoads loads;
  std::int64_t skipped = 0;  // number of updates that the run skipped
  std::string end;           // such as "interrupted at step 40 (SIGTERM)", if the last line says so
  std::string mfu_source;    // the rate of which MFU is a share; empty if not told
  double mfu_flops = 0;      // the rate behind MFU, for all ranks [FLOP/s]
  std::int64_t steps = 0;    // train.steps; 0 if config.yaml cannot be read
  std::map<std::string, std::string> config;  // every value of config.yaml, by its path
  std::string measured;                       // text of measured.json; empty if there is none

  std::int64_t last_step() const { return at_step.empty() ? 0 : at_step.back(); }
  /// The last finite value of a series; NaN if there is none.
  double last(const std::string& key) const;
  /// The last part of the directory's path: "quick" for runs/quick/.
  std::string name() const;
};

/// Parses the whole lines of a metrics.jsonl after its first `read` bytes and increases `read` by
/// their length; a line that is still being written is read later. Skips lines with neither a step
/// nor an end. Returns false if the file cannot be opened.
bool add_new_lines(const std::filesystem::path& metrics, std::uint64_t& read, RunFiles& run);

/// Reads a run repeatedly; each time parses only the new lines of metrics.jsonl.
class RunReader {
 public:
  explicit RunReader(const std::filesystem::path& directory) { files_.directory = directory; }
  /// Reads the new lines. Returns false if there is no metrics.jsonl.
  bool refresh();
  const RunFiles& files() const { return files_; }

 private:
  void restart();

  RunFiles files_;
  std::uint64_t file_ = 0;  // inode of metrics.jsonl, which changes when a run is resumed
  std::uint64_t read_ = 0;  // bytes of metrics.jsonl read so far
};

/// Reads a run with its measured.json. Throws Error{missing_input} if there is no metrics.jsonl.
RunFiles read_run_files(const std::filesystem::path& directory);

/// Appends the step lines to `bytes` as TensorBoard events.
void append_events(const RunFiles& run, std::string& bytes);
/// The bytes of a TensorBoard event file with every step line.
std::string event_file_of(const RunFiles& run);

// The state of a run, judged by its files alone: running, ended and why, or silent.

struct RunState {
  enum class Kind {
    waiting,   // no step was written yet
    running,   // the last line is recent
    silent,    // no line for much longer than the usual time between lines
    finished,  // the last step was written
    ended,     // ended before its last step
  };
  Kind kind = Kind::waiting;
  std::string text;  // such as "running" or "interrupted at step 40 (SIGTERM)"
  bool over() const { return kind == Kind::finished || kind == Kind::ended; }
};

/// `now`: seconds since 1970. Also reads the lease of the directory, and the last error in the log
/// of rank 0 if the run ended without an end line.
RunState state_of(const RunFiles& run, double now);

/// Mean seconds from one step to the next over the last 100 lines, including validation and
/// checkpoints; 0 if unknown.
double seconds_per_step(const RunFiles& run);

}  // namespace trainctl
