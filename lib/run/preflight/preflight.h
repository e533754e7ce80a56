// Checks of a run before its first step. All errors are found together, one line each; nothing is
// changed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "config/read/read.h"
#include "plan/plan.h"

namespace trainctl {

struct Finding {
  std::string text;  // such as "memory: 1.2 GiB planned for 2 ranks, 14.0 GiB free"
  LogLevel level = LogLevel::info;
  ExitCode code = ExitCode::ok;  // exit code of an error
  std::string path{};            // configuration key of an error; may be empty
  std::string help{};            // remedy for an error; may be empty
};

struct PreflightInput {
  const ReadResult& read;
  const Plan& plan;
  std::filesystem::path directory;  // directory of the run
  int ranks_here = 1;               // ranks on this machine
  std::int64_t cores = 1;           // cores available to these ranks
  int ranks_in_process = 1;
  bool over_mpi = false;
  bool whole_data = false;  // check all tokens of token files against the vocabulary
};

/// Checks data and vocabulary, folders, disk, memory, address space, CUDA devices and their memory,
/// open files, shared memory, threads, and the remaining time of a Slurm job, in this order. A
/// check that does not apply gives no line.
std::vector<Finding> preflight(const PreflightInput& input);

/// Shows each finding as a message. Errors come last, after a line with `refusal` ("the run does
/// not start") and their number, each with the place of its key in `sources` and its help. Returns
/// the code of the first error, or ok.
ExitCode tell_findings(const std::string& refusal, const SourceMap& sources,
                       const std::vector<Finding>& findings);

}  // namespace trainctl
