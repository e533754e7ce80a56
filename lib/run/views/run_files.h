// The files of a run read back, during the run or after its end, on any machine.
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
  // One entry for each step line of metrics.jsonl.
  std::vector<std::int64_t> at_step;
  std::vector<double> times;  // seconds since 1970; 0 in files of older versions
  /// By key of metrics.jsonl, "ledger.products" for the entries of its ledger and "router.load" for
  /// those of its routers; NaN where a line has none or null.
  std::map<std::string, std::vector<double>> series;
  ExpertLoads loads;
  std::int64_t skipped = 0;  // updates that were left out
  std::string end;           // "interrupted at step 40 (SIGTERM)", if that is the last line
  std::string mfu_source;    // what MFU is a share of; empty: not said
  double mfu_flops = 0;      // FLOP/s of all ranks
  std::int64_t steps = 0;    // train.steps; 0: config.yaml cannot be read
  std::map<std::string, std::string> config;  // every value of config.yaml, by its path
  std::string measured;                       // measured.json as text; empty: there is none

  std::int64_t last_step() const { return at_step.empty() ? 0 : at_step.back(); }
  /// The last finite value of a series; NaN if there is none.
  double last(const std::string& key) const;
  /// "quick" of runs/quick/
  std::string name() const;
};

/// Adds the whole lines of a metrics.jsonl from byte `read` on, and moves `read` behind them: one
/// that is still being written is read later. Lines of no step and no end are left out. False if
/// the file cannot be opened.
bool add_new_lines(const std::filesystem::path& metrics, std::uint64_t& read, RunFiles& run);

/// Reads a run again and again; only what was added to metrics.jsonl is parsed again.
class RunReader {
 public:
  explicit RunReader(const std::filesystem::path& directory) { files_.directory = directory; }
  /// False if there is no metrics.jsonl.
  bool refresh();
  const RunFiles& files() const { return files_; }

 private:
  void restart();

  RunFiles files_;
  std::uint64_t file_ = 0;  // inode: a resumed run has another file
  std::uint64_t read_ = 0;  // bytes
};

/// With measured.json. Throws Error{missing_input} if the directory has no metrics.jsonl.
RunFiles read_run_files(const std::filesystem::path& directory);

/// The lines as events of TensorBoard, added to `bytes`.
void append_events(const RunFiles& run, std::string& bytes);
/// The event file of TensorBoard with every line, as bytes.
std::string event_file_of(const RunFiles& run);

// The state of a run from its files alone: it runs, has ended and why, or says nothing any more.

struct RunState {
  enum class Kind {
    waiting,   // no step is written yet
    running,   // the last line is recent
    silent,    // no line for much longer than between the lines before
    finished,  // the last step is written
    ended,     // before its last step
  };
  Kind kind = Kind::waiting;
  std::string text;  // "running", "interrupted at step 40 (SIGTERM)"
  bool over() const { return kind == Kind::finished || kind == Kind::ended; }
};

/// `now`: seconds since 1970. Reads the lease of the directory, and where the run has ended without
/// a word the last error of rank 0's log.
RunState state_of(const RunFiles& run, double now);

/// Seconds from one step to the next, over the last 100 lines, with validation and checkpoints; 0
/// if unknown.
double seconds_per_step(const RunFiles& run);

}  // namespace trainctl
