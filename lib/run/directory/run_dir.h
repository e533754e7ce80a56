// The directory of a run: config.yaml (resolved), plan.json, metrics.jsonl, rank-N.log, checkpoints
// and the weights. How a run begins there: new, or where an earlier one ended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/whole_file.h"
#include "config/schema/config.h"

namespace trainctl {

/// output.dir with {date} as "2026-01-31_142500" and {n} as the least number for which there is no
/// such directory yet.
std::filesystem::path output_directory(const std::string& pattern);

struct StartRequest {
  std::filesystem::path directory;
  std::string resume = "auto";  // "auto", "none" or the path of a checkpoint or of a run
  const Config& config;         // as given: tokens and epochs are not turned into steps
  std::int64_t steps = 0;       // of a new run
};

struct Start {
  enum class Kind {
    fresh,
    resume,    // from `checkpoint`; its steps may all be done
    finished,  // nothing is left to do
  };
  Kind kind = Kind::fresh;
  /// What becomes of an earlier run's files. aside: they are moved to a directory of their own, as
  /// that run ended before it had saved anything.
  enum class Earlier { stay, removed, aside };
  Earlier earlier = Earlier::stay;
  std::filesystem::path checkpoint;  // resume
  std::int64_t step = 0;             // of the checkpoint, or of the finished run
  bool has_weights = false;          // resume: what a run writes at its end is there, or not wanted
  std::vector<std::string> notes;    // what was skipped and why, and what the config changes
};

/// Decides; changes nothing. Throws Error{usage} for a run that must not be replaced,
/// Error{config} for a configuration that the run cannot go on with, Error{missing_input |
/// bad_data} for a checkpoint that was named and cannot be read, or where every one is damaged, and
/// Error{io} where the system cannot read: nothing is then known of the checkpoints.
Start decide_start(const StartRequest& request);

/// Carries the decision out: removes or moves the earlier run's files, cuts metrics.jsonl after the
/// checkpoint's step, removes what an earlier process left half-written. Throws Error{io} and what
/// the fence throws.
void prepare_run_dir(const std::filesystem::path& directory, const Start& start,
                     const Fence& fence);

}  // namespace trainctl
