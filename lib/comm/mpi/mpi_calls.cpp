#include "comm/mpi/mpi_calls.h"

#include <pthread.h>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/at.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "comm/rank_words.h"
#include "comm/this_host.h"
#include "device/wait.h"

namespace trainctl {

void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Error(ExitCode::peer,
              "MPI: " + std::string(text, static_cast<std::size_t>(length)) + ", from " + call);
}

void check_length(const MPI_Status& status, std::int64_t expected) {
  int length = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &length), "MPI_Get_count");
  if (length == expected) return;
  throw Error(ExitCode::peer,
              formatted("MPI: rank {} of a group sends {} bytes where {} are expected",
                        status.MPI_SOURCE, length, expected));
}

namespace {
constexpr std::chrono::microseconds shortest_sleep{20};
constexpr std::chrono::microseconds longest_sleep{100};
}  // namespace

struct MpiProgress::Owner {
  Posted* posted;
  std::uint64_t ticket;
  std::int64_t expected;
};

MpiProgress::MpiProgress() = default;

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
    drop(i);
  }
  return found;
}

/// Removes request `index`; the last one takes its place.
void MpiProgress::drop(std::size_t index) {
  requests_[index] = requests_.back();
  requests_.pop_back();
  owners_[index] = owners_.back();
  owners_.pop_back();
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

/// Tests the requests once; true if something was complete.
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
    MPI_Status& status = at(statuses_, i);
    // MPI writes this field only when some request has failed.
    if (result == MPI_SUCCESS) status.MPI_ERROR = MPI_SUCCESS;
    complete(static_cast<std::size_t>(at(indices_, i)), status);
  }
  for (std::size_t i = owners_.size(); i-- > 0;) {
    if (owners_[i].posted != nullptr) continue;
    drop(i);
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

namespace {

constexpr double telling_seconds = 0.1;  // between two updates of the missing ranks

/// Spins a little, then yields, then sleeps, since ranks may outnumber the cores.
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

struct MpiRequests::Half {
  int peer;
  std::int64_t expected;  // bytes to receive; -1 for a send
};

MpiRequests::MpiRequests(MpiShared& shared, MPI_Comm comm, WaitNote& note)
    : shared_(shared), comm_(comm), note_(note) {}

MpiRequests::~MpiRequests() = default;

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
  WaitLimit patience(shared_.deadline);
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

/// Tests the requests once; returns how many were complete. Their handles become null.
std::size_t MpiRequests::poll() {
  int count = 0;
  const int result = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                  indices_.data(), statuses_.data());
  if (result == MPI_SUCCESS && count == MPI_UNDEFINED) return 0;
  try {
    if (result != MPI_ERR_IN_STATUS) check_mpi(result, "MPI_Testsome");
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const Half& half = at(halves_, indices_[i]);
      if (result == MPI_ERR_IN_STATUS) check_mpi(statuses_[i].MPI_ERROR, "MPI_Testsome");
      if (half.expected >= 0) check_length(statuses_[i], half.expected);
    }
  } catch (...) {
    shared_.broken = true;
    throw;
  }
  return static_cast<std::size_t>(count);
}

/// Finds the peers that have not sent, or, if all have sent, the peers that have not received.
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

namespace {

constexpr int code_of_peer = static_cast<int>(ExitCode::peer);
constexpr std::int64_t min_temporary_bytes = 4 << 20;  // a segment of PMIx

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

std::string text_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

bool can_read_another_process() {
  int from = 1;
  int to = 0;
  const iovec local{&to, sizeof to};
  const iovec remote{&from, sizeof from};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == sizeof to;
}

/// Sets defaults that Open MPI and NCCL read when they start; values set by the user stay.
void set_defaults_of_mpi() {
  // Containers often forbid this system call, and Open MPI finds out in the middle of a message.
  if (!can_read_another_process()) setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  if (number_in("OMPI_COMM_WORLD_LOCAL_SIZE") > cores_of_this_process()) {
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  }
  const auto shared = interface_in(interfaces(), text_in("OMPI_MCA_btl_tcp_if_include"));
  if (shared) setenv("NCCL_SOCKET_IFNAME", ("=" + *shared).c_str(), 0);
}

/// Throws if Slurm started the ranks without PMIx: Open MPI would then end the process inside
/// MPI_Init, with a page of text that does not help.
void check_slurm(const LaunchedAs& launched) {
  const int tasks = number_in("SLURM_STEP_NUM_TASKS");
  if (tasks <= 1 || std::getenv("PMIX_RANK") != nullptr) return;
  if (std::getenv("PMI_RANK") != nullptr) {
    if (launched.rank == 0) {
      log_warning(
          "srun offers PMI-2, which few builds of Open MPI can use; if MPI does not start, "
          "use srun --mpi=pmix");
    }
    return;
  }
  if (launched.rank != 0) {
    std::this_thread::sleep_for(std::chrono::seconds(1));  // srun may end rank 0 with this rank
    _exit(static_cast<int>(ExitCode::unavailable));
  }
  throw Error(ExitCode::unavailable,
              formatted("srun has started {} tasks without PMIx, by which MPI finds the other "
                        "ranks: use srun --mpi=pmix ('srun --mpi=list' shows what this Slurm has), "
                        "or start trainctl launch in the job, without srun",
                        tasks));
}

/// The folder in which Open MPI and PMIx keep their files.
std::string temporary_folder() {
  for (const char* variable : {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"}) {
    const std::string folder = text_in(variable);
    if (!folder.empty()) return folder;
  }
  return "/tmp";
}

/// Throws if MPI has no space for its files: MPI itself would end the process with pages of text
/// that name neither the host nor the folder.
void check_temporary_folder(const LaunchedAs& launched, const std::string& host) {
  const std::string folder = temporary_folder();
  std::error_code failure;
  const std::filesystem::space_info space = std::filesystem::space(folder, failure);
  if (!failure && space.available >= min_temporary_bytes) return;
  throw Error(ExitCode::io,
              formatted("rank {} (host {}): MPI needs place for its files in {}: {}; make room "
                        "there, or set TMPDIR",
                        launched.rank, host, folder,
                        failure ? failure.message()
                                : format_bytes(static_cast<std::int64_t>(space.available)) +
                                      " free of " + format_bytes(min_temporary_bytes)));
}

std::string joining_text(double seconds, const LaunchedAs& launched, const std::string& host) {
  const std::string text =
      formatted("rank {} of {} (host {}): MPI has not connected all ranks within {}", launched.rank,
                launched.size, host, format_seconds(seconds));
  const int here = number_in("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (here == launched.size) return text + ": a rank has not started, or is stopped";
  const std::string include = text_in("OMPI_MCA_btl_tcp_if_include");
  return text + ": a rank has not started, or an address here leads elsewhere; addresses here: " +
         addresses_text(interfaces()) + "; " +
         (include.empty() ? "set OMPI_MCA_btl_tcp_if_include to the subnet that all hosts share"
                          : "OMPI_MCA_btl_tcp_if_include is " + include);
}

}  // namespace

EndInTime::EndInTime(double seconds, std::function<void()> late)
    : thread_([this, seconds, late = std::move(late)] { work(seconds, late); }) {}

EndInTime::~EndInTime() {
  {
    const std::lock_guard lock(mutex_);
    called_off_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void EndInTime::work(double seconds, const std::function<void()>& late) {
  std::unique_lock lock(mutex_);
  WaitLimit patience(seconds);
  while (!called_off_ && !patience.over()) changed_.wait_for(lock, patience.until_next_look());
  if (!called_off_) late();
}

double longest_joining(double deadline_seconds) {
  return std::clamp(deadline_seconds, 10.0, 120.0);
}

EndInTime end_joining_in_time(double seconds, const LaunchedAs& launched, const std::string& host) {
  return {seconds, [seconds, launched, host] {
            set_log_rank(launched.rank, launched.size);
            log_error(joining_text(seconds, launched, host));
            // The launcher ends all ranks when the first one ends, so let the others report first.
            std::this_thread::sleep_for(std::chrono::duration<double>(Watch::speak_seconds));
            tell_launch(RankWord::failed, code_of_peer);
            _exit(code_of_peer);
          }};
}

int start_mpi(const LaunchedAs& launched, const std::string& host) {
  check_slurm(launched);
  check_temporary_folder(launched, host);
  set_defaults_of_mpi();
  int provided = MPI_THREAD_SINGLE;
  MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
  MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  int size = 1;
  MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  if (launched.size > 1 && size == 1) {
    MPI_Finalize();
    throw Error(ExitCode::unavailable,
                formatted("{} says this is rank {} of {}, but MPI sees one process: the launcher "
                          "and the MPI library do not know each other. Start with mpirun, or with "
                          "srun --mpi=pmix (srun --mpi=list shows what is there)",
                          launched.launcher, launched.rank, launched.size));
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw Error(ExitCode::unavailable, "this MPI library gives no MPI_THREAD_MULTIPLE");
  }
  return size;
}

}  // namespace trainctl
