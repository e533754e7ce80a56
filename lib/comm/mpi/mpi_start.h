// The start of MPI, and the calls of it that can block for ever: each has a thread beside it that
// ends the process in time.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "comm/world.h"

namespace trainctl {

/// Calls `late` on a thread of its own unless destroyed before this process has run for `seconds`.
/// `late` ends the process.
class EndInTime {
 public:
  EndInTime(double seconds, std::function<void()> late);
  ~EndInTime();
  EndInTime(const EndInTime&) = delete;
  EndInTime& operator=(const EndInTime&) = delete;

 private:
  void work(double seconds, const std::function<void()>& late);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool called_off_ = false;
  std::thread thread_;
};

/// How long ranks wait for each other while they join, given their deadline: at least 10 s, as no
/// rank is to blame for a machine that starts slowly, and at most 120 s.
double longest_joining(double deadline_seconds);

/// Beside MPI_Init and the first exchange. After `seconds` it says what this rank sees and ends the
/// process with ExitCode::peer.
class Joining {
 public:
  Joining(double seconds, const LaunchedAs& launched, const std::string& host);

 private:
  EndInTime end_;
};

/// MPI_Init_thread, with settings that suit this host where the user has none, and errors as
/// results. Returns the number of ranks. Throws Error{unavailable} where MPI and the launcher do
/// not know each other, and Error{io} where MPI has no room for its files, and names the fix.
int start_mpi(const LaunchedAs& launched, const std::string& host);

}  // namespace trainctl
