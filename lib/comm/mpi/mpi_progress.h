// Progresses sends and receives in flight while all other threads of the rank compute. One thread
// per rank, started with the first message; it sleeps while there are no messages.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/host/posted.h"
#include "comm/mpi/mpi_check.h"

namespace trainctl {

class MpiProgress {
 public:
  MpiProgress() = default;
  ~MpiProgress();
  MpiProgress(const MpiProgress&) = delete;
  MpiProgress& operator=(const MpiProgress&) = delete;

  /// Calls owner.finish(ticket) when `request` is complete. `expected` is the length of a receive
  /// in bytes, -1 for a send.
  void add(MPI_Request request, Posted& owner, std::uint64_t ticket, std::int64_t expected);
  /// Abandons what is still in flight for `owner`; true if there was something.
  bool forget(const Posted& owner);

 private:
  struct Owner {
    Posted* posted;
    std::uint64_t ticket;
    std::int64_t expected;
  };

  void work();
  bool poll();
  void complete(std::size_t index, const MPI_Status& status);

  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<MPI_Request> requests_;
  std::vector<Owner> owners_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace trainctl
