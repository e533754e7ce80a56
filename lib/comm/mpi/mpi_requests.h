// The messages of one collective in flight on a communicator: posted together and awaited together
// by polling with back-off, up to the world's deadline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/mpi/mpi_check.h"
#include "comm/mpi/mpi_shared.h"

namespace trainctl {

/// The longest message of one MPI call; MPI counts in int.
inline constexpr std::int64_t longest_mpi_message = std::int64_t{1} << 30;

class MpiRequests {
 public:
  /// While it waits, `note` records the missing ranks.
  MpiRequests(MpiShared& shared, MPI_Comm comm, WaitNote& note)
      : shared_(shared), comm_(comm), note_(note) {}

  /// Empty messages are not sent, since both sides know the length.
  void send(const void* data, std::int64_t bytes, int to, int tag);
  void receive(void* data, std::int64_t bytes, int from, int tag);
  /// A message without content, which is sent nevertheless.
  void send_sign(int to, int tag);
  void receive_sign(int from, int tag);

  /// True if all are complete. False after the deadline: waited() and missing() give details, and
  /// the receives are abandoned. Any failure marks the world as broken.
  bool wait();
  double waited() const { return waited_; }
  /// The peers whose messages did not arrive, or that did not receive ours.
  std::vector<int> missing() const { return missing_; }

 private:
  struct Half {
    int peer;
    std::int64_t expected;  // bytes to receive; -1 for a send
  };

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

}  // namespace trainctl
