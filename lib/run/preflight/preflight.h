// Checks of a run before its first step: each finding is one line, and all errors are found
// together. Nothing is changed.
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
  std::string text;  // "memory: 1.2 GiB planned for 2 ranks, 14.0 GiB free"
  LogLevel level = LogLevel::info;
  ExitCode code = ExitCode::ok;  // of an error
  std::string path{};            // the key that an error is about; may be empty
  std::string help{};            // what to do about an error; may be empty
};

struct PreflightInput {
  const ReadResult& read;
  const Plan& plan;
  std::filesystem::path directory;  // of the run
  int ranks_here = 1;               // on this machine
  std::int64_t cores = 1;           // that they can use
  int ranks_in_process = 1;
  bool over_mpi = false;
  bool whole_data = false;  // read token files to their end, to see that the vocabulary holds them
};

/// Data and its vocabulary, folders, disk, memory, address space, CUDA devices and their memory,
/// open files, shared memory, threads, and the time that a Slurm job has left, in this order; what
/// does not apply has no line.
std::vector<Finding> preflight(const PreflightInput& input);

/// Shows each as a message. Errors come last, after `refusal` ("the run does not start") and their
/// number, each with the place of its key in `sources` and its help. Returns the code of the first
/// error, or ok.
ExitCode tell_findings(const std::string& refusal, const SourceMap& sources,
                       const std::vector<Finding>& findings);

}  // namespace trainctl
