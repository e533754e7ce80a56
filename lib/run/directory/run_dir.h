// The directory of a run: config.yaml (resolved), plan.json, metrics.jsonl, rank-N.log, checkpoints
// and the weights. Decides whether a run starts new or continues from a checkpoint. metrics.jsonl
// has one JSON object per step, for tools.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "config/schema/config.h"
#include "engine/report.h"
#include "engine/trace.h"
#include "plan/cost/ledger.h"

namespace trainctl {

/// Measurements of rank 0 after a step.
struct StepNotes {
  double time = 0;                       // seconds since 1970, UTC
  double mfu = 0;                        // 0 to 1; see records/product_peak.h
  std::int64_t memory = 0;               // resident bytes of the process
  Ledger ledger;                         // result of own_ledger (engine/trace.h)
  std::span<const TimerRange> timers{};  // all ranks, over the steps since the last report
  /// The rate of which `mfu` is a share [FLOP/s of all ranks], and its source. If the source is
  /// empty, both are unchanged since the previous line.
  double peak_flops = 0;
  std::string_view peak_source{};
};

/// Appends one line with its newline to `text`: step, loss, grad_norm, loss_scale if there is a
/// scaler, lr, tokens, batch_size with a ramp, val_loss if measured, then the keys that depend on
/// clock and machine: tokens_per_second, step_seconds, time, mfu, memory, ledger, timers if there
/// are any, and mfu_peak if it has changed. Numbers have their shortest exact form; null if not
/// finite.
void append_metrics(const StepReport& report, const StepNotes& notes, std::string& text);

class MetricsFile {
 public:
  /// Appends to `path` in the directory of a run. `fence` is that of the directory and must outlive
  /// this object. Throws Error{io}.
  MetricsFile(std::filesystem::path path, const Fence& fence);
  /// Writes the line before it returns. If that fails, for example on a full disk, logs an error
  /// and keeps the line in memory for the next call, up to the last `max_waiting` bytes of lines;
  /// older lines are lost, which is logged. If the file was removed, writes all its lines again,
  /// with a warning. Throws Error{taken} if another start removed it.
  void write(const StepReport& report, const StepNotes& notes);
  /// Writes a last line: {"end": "interrupted at step 40", "reason": "SIGTERM", "time": ...}. A
  /// resumed run removes it.
  void write_end(const std::string& end, const std::string& reason, double time);
  /// Brings all lines to stable storage. Throws Error{io}.
  void sync();
  static constexpr std::size_t max_waiting = std::size_t{8} << 20;

 private:
  using Clock = std::chrono::steady_clock;
  void try_to_write();
  void write_waiting();
  void drop_oldest();
  void look_for_file();
  void write_again();

  const std::filesystem::path path_;
  const Fence& fence_;
  File file_;
  Clock::time_point looked_ = Clock::now();
  std::string lines_;  // lines not yet written; keeps its memory, so that a step allocates nothing
  bool failing_ = false;
  std::int64_t lost_ = 0;  // lines lost since the last one written
};

/// The step of the last whole line of a file; none if there is no file or no such line. Throws
/// Error{io}.
std::optional<std::int64_t> last_step(const std::filesystem::path& path);
/// Adds the validation loss to the line of a step; no effect without such a line. Throws Error{io}
/// and the errors of the fence.
void add_val_loss(const std::filesystem::path& path, std::int64_t step, double val_loss,
                  const Fence& fence);
/// Rewrites the file with the lines up to `step`, and only the last line of each step. Returns the
/// number of steps without a line. Throws Error{io} and the errors of the fence.
std::int64_t keep_metrics_until(const std::filesystem::path& path, std::int64_t step,
                                const Fence& fence);

/// output.dir with {date} replaced by "2026-01-31_142500" and {n} by the least number for which no
/// such directory exists yet.
std::filesystem::path output_directory(const std::string& pattern);

struct Start {
  enum class Kind {
    fresh,
    resume,    // continue from `checkpoint`, perhaps after the last step
    finished,  // nothing remains to be done
  };
  Kind kind = Kind::fresh;
  /// The fate of an earlier run's files. aside: they are moved to a directory of their own, since
  /// that run ended before it saved anything.
  enum class Earlier { stay, removed, aside };
  Earlier earlier = Earlier::stay;
  std::filesystem::path checkpoint;  // for Kind::resume
  std::int64_t step = 0;             // step of the checkpoint or of the finished run
  bool has_weights = false;          // resume: the final weights exist or are not wanted
  std::vector<std::string> notes;    // skipped checkpoints, changes of the configuration
};

/// Decides how a run in `directory` starts; changes nothing. `resume`: "auto", "none" or the path
/// of a checkpoint or of a run. `config`: before tokens and epochs are turned into steps. `steps`:
/// length of a new run. Throws Error{usage} for a run that must not be replaced, Error{config} for
/// a configuration with which the run cannot continue, Error{missing_input | bad_data} if the named
/// checkpoint cannot be read or all are damaged, and Error{io} if a failed read leaves the
/// checkpoints unknown.
Start decide_start(const std::filesystem::path& directory, const std::string& resume,
                   const Config& config, std::int64_t steps = 0);

/// Prepares the directory as decided: removes or moves the earlier run's files, cuts metrics.jsonl
/// after the checkpoint's step, removes unfinished files of an earlier process. Throws Error{io}
/// and the errors of the fence.
void prepare_run_dir(const std::filesystem::path& directory, const Start& start,
                     const Fence& fence);

}  // namespace trainctl
