// `trainctl train`: from a config file to a finished run, on this rank or on all ranks of this
// process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trainctl {

struct TrainRequest {
  std::filesystem::path config;
  std::vector<std::string> set_options;  // "path=value"
  int local_ranks = 0;                   // > 0: that many ranks as threads of this process
  bool color = true;                     // of diagnostics on stderr
};

/// Returns the exit code of the process: 0, 78 with the diagnostics printed, or 75 after a signal.
/// Throws Error for every other failure of a rank that is alone or a thread; under MPI such a
/// failure is logged and ends the job with its code.
int run_training(const TrainRequest& request);

}  // namespace trainctl
