#include "comm/mpi/mpi_requests.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "device/patience.h"

namespace trainctl {

namespace {

constexpr double telling_seconds = 0.1;  // between two looks at who is missing

/// Spins a little, then lets others run, then sleeps: ranks may outnumber the cores.
class Backoff {
 public:
  explicit Backoff(bool crowded) : spins_(crowded ? 4 : 2000) {}
  void pause() {
    rounds_ += 1;
    if (rounds_ <= spins_) return;
    if (rounds_ <= spins_ + yields) {
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(2 * sleep_, longest_sleep);
  }
  void restart() {
    rounds_ = 0;
    sleep_ = shortest_sleep;
  }

 private:
  static constexpr int yields = 50;
  static constexpr std::chrono::microseconds shortest_sleep{20};
  static constexpr std::chrono::microseconds longest_sleep{100};

  const int spins_;
  int rounds_ = 0;
  std::chrono::microseconds sleep_ = shortest_sleep;
};

template <class Post>
void in_pieces(std::int64_t bytes, Post post) {
  for (std::int64_t begin = 0; begin < bytes; begin += longest_mpi_message) {
    post(begin, std::min(longest_mpi_message, bytes - begin));
  }
}

}  // namespace

void MpiRequests::send(const void* data, std::int64_t bytes, int to, int tag) {
  in_pieces(bytes, [&](std::int64_t begin, std::int64_t length) {
    post_send(static_cast<const std::byte*>(data) + begin, length, to, tag);
  });
}

void MpiRequests::receive(void* data, std::int64_t bytes, int from, int tag) {
  in_pieces(bytes, [&](std::int64_t begin, std::int64_t length) {
    post_receive(static_cast<std::byte*>(data) + begin, length, from, tag);
  });
}

void MpiRequests::send_sign(int to, int tag) { post_send(nullptr, 0, to, tag); }

void MpiRequests::receive_sign(int from, int tag) { post_receive(nullptr, 0, from, tag); }

void MpiRequests::post_send(const void* data, std::int64_t bytes, int to, int tag) {
  MPI_Request request;
  MPI_CHECK(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm_, &request));
  requests_.push_back(request);
  halves_.push_back({to, -1});
}

void MpiRequests::post_receive(void* data, std::int64_t bytes, int from, int tag) {
  MPI_Request request;
  MPI_CHECK(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, comm_, &request));
  requests_.push_back(request);
  halves_.push_back({from, bytes});
}

bool MpiRequests::wait() {
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  missing_.clear();
  Patience patience(shared_.deadline);
  Backoff backoff(shared_.crowded);
  std::size_t left = requests_.size();
  double told = 0;
  while (left > 0) {
    const std::size_t completed = poll();
    left -= completed;
    if (completed > 0) {
      backoff.restart();
    } else if (patience.over()) {
      waited_ = patience.waited();
      find_missing();
      note_.waits_for(missing_);
      shared_.activity.tell_hang();
      give_up();
      return false;
    } else {
      if (patience.waited() > told + telling_seconds) {
        told = patience.waited();
        find_missing();
        note_.waits_for(missing_);
      }
      backoff.pause();
    }
  }
  requests_.clear();
  halves_.clear();
  note_.goes_on();
  return true;
}

/// How many requests this look found complete. Their handles become null.
std::size_t MpiRequests::poll() {
  int count = 0;
  const int result = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                  indices_.data(), statuses_.data());
  if (result == MPI_SUCCESS && count == MPI_UNDEFINED) return 0;
  try {
    if (result != MPI_ERR_IN_STATUS) check_mpi(result, "MPI_Testsome");
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const Half& half = halves_[static_cast<std::size_t>(indices_[i])];
      if (result == MPI_ERR_IN_STATUS) check_mpi(statuses_[i].MPI_ERROR, "MPI_Testsome");
      if (half.expected >= 0) check_length(statuses_[i], half.expected);
    }
  } catch (...) {
    shared_.broken = true;
    throw;
  }
  return static_cast<std::size_t>(count);
}

/// The peers that sent nothing; only if all have sent, those that took nothing.
void MpiRequests::find_missing() {
  missing_.clear();
  for (const bool receives : {true, false}) {
    if (!missing_.empty()) break;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL || (halves_[i].expected >= 0) != receives) continue;
      if (std::ranges::find(missing_, halves_[i].peer) == missing_.end()) {
        missing_.push_back(halves_[i].peer);
      }
    }
  }
  std::ranges::sort(missing_);
}

void MpiRequests::give_up() {
  shared_.broken = true;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (halves_[i].expected >= 0) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
  requests_.clear();
  halves_.clear();
}

}  // namespace trainctl
