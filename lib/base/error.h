// The exception type for failures of files, peers and devices, with the exit code of the process.
// config/Diagnostics reports errors of the user's configuration instead; asserts find our own bugs.
#pragma once

#include <stdexcept>
#include <string>

namespace trainctl {

/// Exit codes of the process, documented in docs/exit-codes.md; all are below 126.
enum class ExitCode : int {
  ok = 0,
  usage = 2,           // the command line is wrong
  bad_data = 65,       // a token file or another input is malformed
  missing_input = 66,  // a requested file does not exist or cannot be read
  unavailable = 69,    // a device, network or library is missing, or a feature is not built
  internal = 70,       // a bug of trainctl
  diverged = 71,       // the loss or a gradient became NaN or infinite
  does_not_fit = 72,   // the plan needs more memory than a given limit
  taken = 73,          // another process owns the run
  io = 74,             // reading or writing failed in the system
  requeue = 75,        // a signal ended the run early, all work is saved: start it again
  peer = 76,           // another rank failed, stopped or disagrees
  interrupted = 77,    // a signal ended the run early
  config = 78,         // the configuration is invalid
};

/// Thrown for every failure that is neither a wrong configuration nor a bug of trainctl.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Throws Error{code, message} unless `holds`. For external conditions, and only on cold paths.
inline void require(bool holds, ExitCode code, const std::string& message) {
  if (!holds) throw Error(code, message);
}

}  // namespace trainctl
