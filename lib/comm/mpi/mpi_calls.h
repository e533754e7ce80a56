// Calls of MPI: failures as exceptions, progress of messages, requests with a deadline, and the
// start. Only files named mpi_* include mpi.h.
#pragma once

#define OMPI_SKIP_MPICXX 1  // the C interface only; the old C++ interface causes warnings
#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/host/host_group.h"
#include "comm/host/watch.h"
#include "comm/world.h"

namespace trainctl {

/// Throws Error{peer} with MPI's text and the call unless `result` is MPI_SUCCESS.
void check_mpi(int result, const char* call);
/// Throws Error{peer} unless exactly `expected` bytes were received.
void check_length(const MPI_Status& status, std::int64_t expected);

}  // namespace trainctl

#define MPI_CHECK(call) ::trainctl::check_mpi((call), #call)

namespace trainctl {

// Progresses sends and receives in flight while all other threads of the rank compute. One thread
// per rank, started with the first message; it sleeps while there are no messages.

class MpiProgress {
 public:
  MpiProgress();
  ~MpiProgress();
  MpiProgress(const MpiProgress&) = delete;
  MpiProgress& operator=(const MpiProgress&) = delete;

  /// Calls owner.finish(ticket) when `request` is complete. `expected` is the length of a receive
  /// in bytes, -1 for a send.
  void add(MPI_Request request, Posted& owner, std::uint64_t ticket, std::int64_t expected);
  /// Abandons all requests in flight for `owner`; true if there were any.
  bool forget(const Posted& owner);

 private:
  struct Owner;

  void work();
  bool poll();
  void complete(std::size_t index, const MPI_Status& status);
  void drop(std::size_t index);

  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<MPI_Request> requests_;
  std::vector<Owner> owners_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  bool closing_ = false;
  std::thread thread_;
};

// The state shared by the MPI world, its groups and its waits; internal to comm/.

/// The host and process of a rank, as it reported to all ranks at the start.
struct MpiPeer {
  char host[64];
  long process;
  unsigned long process_namespace;  // process numbers are comparable only within one namespace
};

struct MpiShared {
  std::vector<MpiPeer> peers;  // one per world rank
  int rank = 0;
  double deadline = 300;
  bool check_collectives = false;
  bool crowded = false;             // more ranks than cores: waiting must not occupy a core
  std::atomic<bool> broken{false};  // a wait failed: no collective works any more
  Activity activity;
  MpiProgress progress;

  /// The name of a rank, for example "rank 3 (host x, process 123)".
  std::string describe(int world_rank) const;
  /// "; rank 5 is stopped" for each rank of this host that is stopped or gone, even if this rank
  /// does not wait for it directly; otherwise empty.
  std::string remarks() const;
};

// The messages of one collective in flight on a communicator: posted together and awaited together
// by polling with back-off, up to the world's deadline.

/// The longest message of one MPI call; MPI counts in int.
inline constexpr std::int64_t longest_mpi_message = std::int64_t{1} << 30;

class MpiRequests {
 public:
  /// `note` records the missing ranks while this object waits.
  MpiRequests(MpiShared& shared, MPI_Comm comm, WaitNote& note);
  ~MpiRequests();

  /// Empty messages are not sent, since both sides know the length.
  void send(const void* data, std::int64_t bytes, int to, int tag);
  void receive(void* data, std::int64_t bytes, int from, int tag);
  /// Sends an empty message, which send() would leave out.
  void send_sign(int to, int tag);
  void receive_sign(int from, int tag);

  /// Waits for all requests; true if all are complete. False after the deadline: waited() and
  /// missing() give details, and the receives are abandoned. Any failure marks the world as broken.
  bool wait();
  double waited() const { return waited_; }
  /// The peers whose messages did not arrive, or that did not receive ours.
  std::vector<int> missing() const { return missing_; }

 private:
  struct Half;

  void post_send(const void* data, std::int64_t bytes, int to, int tag);
  void post_receive(void* data, std::int64_t bytes, int from, int tag);
  std::size_t poll();
  void find_missing();
  void give_up();

  MpiShared& shared_;
  const MPI_Comm comm_;
  WaitNote& note_;
  std::vector<MPI_Request> requests_;
  std::vector<Half> halves_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<int> missing_;
  double waited_ = 0;
};

// The start of MPI. Calls of MPI that may block for ever are guarded by a second thread, which ends
// the process in time.

/// Calls `late`, which ends the process, on a separate thread unless this object is destroyed
/// before this process has run for `seconds`.
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

/// How long [s] ranks wait for each other while they join, given their deadline: at least 10 s,
/// since a machine may start slowly, and at most 120 s.
double longest_joining(double deadline_seconds);

/// Limits MPI_Init and the first exchange: after `seconds`, prints the ranks that this rank sees
/// and ends the process with ExitCode::peer.
EndInTime end_joining_in_time(double seconds, const LaunchedAs& launched, const std::string& host);

/// Calls MPI_Init_thread, with defaults for this host if the user set none, and errors as results.
/// Returns the number of ranks. Throws Error{unavailable} where MPI and the launcher do not know
/// each other, and Error{io} where MPI has no room for its files, and names the fix.
int start_mpi(const LaunchedAs& launched, const std::string& host);

}  // namespace trainctl
