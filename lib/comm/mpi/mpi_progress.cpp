#include "comm/mpi/mpi_progress.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "base/error.h"

namespace trainctl {

namespace {
constexpr std::chrono::microseconds shortest_sleep{20};
constexpr std::chrono::microseconds longest_sleep{100};
}  // namespace

MpiProgress::~MpiProgress() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  added_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void MpiProgress::add(MPI_Request request, Posted& owner, std::uint64_t ticket,
                      std::int64_t expected) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    owners_.push_back({&owner, ticket, expected});
    indices_.resize(requests_.capacity());
    statuses_.resize(requests_.capacity());
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { work(); });
      pthread_setname_np(thread_.native_handle(), "messages");
    }
  }
  added_.notify_one();
}

bool MpiProgress::forget(const Posted& owner) {
  const std::lock_guard lock(mutex_);
  bool found = false;
  for (std::size_t i = owners_.size(); i-- > 0;) {
    if (owners_[i].posted != &owner) continue;
    found = true;
    // Only receives can be cancelled; a send's buffer must outlive the job.
    if (owners_[i].expected >= 0) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
    requests_[i] = requests_.back();
    requests_.pop_back();
    owners_[i] = owners_.back();
    owners_.pop_back();
  }
  return found;
}

void MpiProgress::work() {
  std::unique_lock lock(mutex_);
  auto sleep = shortest_sleep;
  while (true) {
    added_.wait(lock, [this] { return closing_ || !requests_.empty(); });
    if (closing_) return;
    sleep = poll() ? shortest_sleep : std::min(2 * sleep, longest_sleep);
    lock.unlock();
    std::this_thread::sleep_for(sleep);
    lock.lock();
  }
}

/// Looks once; true if something was complete.
bool MpiProgress::poll() {
  int count = 0;
  const int result = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                  indices_.data(), statuses_.data());
  if (result != MPI_SUCCESS && result != MPI_ERR_IN_STATUS) {
    try {
      check_mpi(result, "MPI_Testsome");
    } catch (...) {
      for (const Owner& owner : owners_) owner.posted->fail(std::current_exception());
    }
    requests_.clear();
    owners_.clear();
    return true;
  }
  if (count == MPI_UNDEFINED || count == 0) return false;
  for (int i = 0; i < count; ++i) {
    MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    // The field is written only when some request has failed.
    if (result == MPI_SUCCESS) status.MPI_ERROR = MPI_SUCCESS;
    complete(static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]), status);
  }
  for (std::size_t i = owners_.size(); i-- > 0;) {
    if (owners_[i].posted != nullptr) continue;
    requests_[i] = requests_.back();
    requests_.pop_back();
    owners_[i] = owners_.back();
    owners_.pop_back();
  }
  return true;
}

void MpiProgress::complete(std::size_t index, const MPI_Status& status) {
  Owner& owner = owners_[index];
  try {
    check_mpi(status.MPI_ERROR, owner.expected < 0 ? "MPI_Isend" : "MPI_Irecv");
    if (owner.expected >= 0) check_length(status, owner.expected);
    owner.posted->finish(owner.ticket);
  } catch (...) {
    owner.posted->fail(std::current_exception());
  }
  owner.posted = nullptr;
}

}  // namespace trainctl
