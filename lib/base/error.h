// Failures of the world (files, peers, devices) as one exception type that carries the process's
// exit code. The user's configuration is reported through config/Diagnostics instead; our own bugs
// are asserts.
#pragma once

#include <stdexcept>
#include <string>

namespace trainctl {

/// Codes that the process returns. Documented in docs/exit-codes.md; all stay below 126.
enum class ExitCode : int {
  ok = 0,
  usage = 2,           // the command line is wrong
  bad_data = 65,       // a token file or another input is malformed
  missing_input = 66,  // a file that was named does not exist or cannot be read
  unavailable = 69,    // a device, wire or library is not there, or a feature is not built yet
  internal = 70,       // a bug of ours
  diverged = 71,       // the loss or a gradient became NaN or infinite
  does_not_fit = 72,   // the plan needs more memory than the limit that was asked about
  taken = 73,          // another start owns the run
  io = 74,             // the system could not read or write
  requeue = 75,        // a signal ended it early and all work is saved: start it again
  peer = 76,           // another rank failed, stopped or disagrees
  interrupted = 77,    // a signal ended it early
  config = 78,         // the configuration is invalid
};

/// Thrown for every failure that is neither the user's configuration nor our bug.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Throws Error{code, message} unless `holds`. For conditions of the world, on cold paths only.
inline void require(bool holds, ExitCode code, const std::string& message) {
  if (!holds) throw Error(code, message);
}

}  // namespace trainctl
