// The directory of a run: config.yaml (resolved), plan.json, metrics.jsonl, rank-N.log, checkpoints
// and the weights. How a run begins there: new, or where an earlier one ended. metrics.jsonl has
// one JSON object per step, for tools.
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
  double mfu = 0;                        // 0 to 1: see records/product_peak.h
  std::int64_t memory = 0;               // resident bytes of the process
  Ledger ledger;                         // own_ledger of engine/trace.h
  std::span<const TimerRange> timers{};  // of all ranks, over the steps since the last report
  /// The rate of which `mfu` is a share, in FLOP/s of all ranks, and where it is from. An empty
  /// source: both are those of the line before.
  double peak_flops = 0;
  std::string_view peak_source{};
};

/// Appends one line with its newline to `text`: step, loss, grad_norm, loss_scale if there is a
/// scaler, lr, tokens, batch_size with a ramp, then val_loss if measured, then what depends on the
/// clock and the machine: tokens_per_second, step_seconds, time, mfu, memory, ledger, timers if
/// there are any, and mfu_peak if it is another than before. Numbers in their shortest exact form;
/// null where a value is not finite.
void append_metrics(const StepReport& report, const StepNotes& notes, std::string& text);

class MetricsFile {
 public:
  /// Appends to `path`, in a run's directory with this fence, which must outlive it. Throws
  /// Error{io}.
  MetricsFile(std::filesystem::path path, const Fence& fence);
  /// The line is in the file when this returns. Where that fails, for example on a full disk, an
  /// error is logged, and the line waits in memory for the next call: the last `max_waiting` bytes
  /// of lines do, those before are lost, which is told. If somebody has removed the file, all its
  /// lines are written again, with a warning. Throws Error{taken} if that was another start.
  void write(const StepReport& report, const StepNotes& notes);
  /// A last line: {"end": "interrupted at step 40", "reason": "SIGTERM", "time": ...}. It is not
  /// kept when the run is resumed.
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
  std::string lines_;  // not in the file yet; its memory is kept, so that a step allocates nothing
  bool failing_ = false;
  std::int64_t lost_ = 0;  // lines since the last that is in the file
};

/// The step of the last whole line of a file; none if there is no such file or line. Throws
/// Error{io}.
std::optional<std::int64_t> last_step(const std::filesystem::path& path);
/// Adds the validation loss to the line of a step; no effect if there is no such line. Throws
/// Error{io}, and what the fence throws.
void add_val_loss(const std::filesystem::path& path, std::int64_t step, double val_loss,
                  const Fence& fence);
/// Leaves the lines up to `step`, and of a step that is there twice the last, in a new file.
/// Returns how many steps have no line. Throws the same.
std::int64_t keep_metrics_until(const std::filesystem::path& path, std::int64_t step,
                                const Fence& fence);

/// output.dir with {date} as "2026-01-31_142500" and {n} as the least number for which there is no
/// such directory yet.
std::filesystem::path output_directory(const std::string& pattern);

struct Start {
  enum class Kind {
    fresh,
    resume,    // from `checkpoint`; its steps may all be done
    finished,  // nothing is left to do
  };
  Kind kind = Kind::fresh;
  /// The fate of an earlier run's files. aside: they are moved to a directory of their own, as that
  /// run ended before it had saved anything.
  enum class Earlier { stay, removed, aside };
  Earlier earlier = Earlier::stay;
  std::filesystem::path checkpoint;  // resume
  std::int64_t step = 0;             // of the checkpoint, or of the finished run
  bool has_weights = false;          // resume: what a run writes at its end is there, or not wanted
  std::vector<std::string> notes;    // what was skipped and why, and what the config changes
};

/// Decides how a run in `directory` starts; changes nothing. `resume`: "auto", "none" or the path
/// of a checkpoint or of a run. `config`: as given, in which tokens and epochs are not turned into
/// steps. `steps`: of a new run. Throws Error{usage} for a run that must not be replaced,
/// Error{config} for a configuration that the run cannot go on with, Error{missing_input |
/// bad_data} for a checkpoint that was named and cannot be read, or where every one is damaged, and
/// Error{io} where the system cannot read: nothing is then known of the checkpoints.
Start decide_start(const std::filesystem::path& directory, const std::string& resume,
                   const Config& config, std::int64_t steps = 0);

/// Carries the decision out: removes or moves the earlier run's files, cuts metrics.jsonl after the
/// checkpoint's step, removes what an earlier process left half-written. Throws Error{io} and what
/// the fence throws.
void prepare_run_dir(const std::filesystem::path& directory, const Start& start,
                     const Fence& fence);

}  // namespace trainctl
