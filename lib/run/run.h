// `trainctl train`: from a config file to a finished run, on this rank or on all ranks that are
// threads of this process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainctl {

struct TrainRequest {
  std::string config;
  std::vector<std::string> set_options;  // "path=value"
  int local_ranks = 0;                   // if > 0, number of ranks, as threads of this process
  std::string resume = "auto";           // argument `resume` of decide_start
  std::int64_t stop_after = 0;           // if > 0, number of steps after which this session ends
  bool search_again = false;             // do not use the layout of layout.yaml
  bool dry_run = false;                  // only check whether the run could start (run/preflight)
  bool color = true;                     // colour diagnostics on stderr
};

/// Returns the exit code of the process: 0, 78 with the diagnostics printed, 2 for a directory that
/// must not be replaced, or 75 or 77 after a signal. Throws Error for every other failure if the
/// rank is alone or a thread; under MPI such a failure is logged and ends the job with its code.
int run_training(const TrainRequest& request);

}  // namespace trainctl
