#include "comm/mpi/mpi_start.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "comm/host/process_state.h"
#include "comm/host/watch.h"
#include "comm/interfaces.h"
#include "comm/mpi/mpi_check.h"
#include "comm/rank_words.h"
#include "device/patience.h"

namespace trainctl {

namespace {

constexpr int code_of_peer = static_cast<int>(ExitCode::peer);
constexpr std::int64_t least_temporary_bytes = 4 << 20;  // a segment of PMIx

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

/// Settings that Open MPI and NCCL read when they start; what the user has set stays.
void set_defaults_of_mpi() {
  // Containers often forbid this system call, and Open MPI finds out in the middle of a message.
  if (!can_read_another_process()) setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  if (number_in("OMPI_COMM_WORLD_LOCAL_SIZE") > cores_of_this_process()) {
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  }
  const auto shared = interface_in(interfaces(), text_in("OMPI_MCA_btl_tcp_if_include"));
  if (shared) setenv("NCCL_SOCKET_IFNAME", ("=" + *shared).c_str(), 0);
}

/// Without a process manager that it knows, Open MPI ends the process inside MPI_Init, with a page
/// of text that does not help.
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
    std::this_thread::sleep_for(std::chrono::seconds(1));  // srun may end rank 0 with this one
    _exit(static_cast<int>(ExitCode::unavailable));
  }
  throw Error(ExitCode::unavailable,
              "srun has started " + std::to_string(tasks) +
                  " tasks without PMIx, by which MPI finds the other ranks: use srun --mpi=pmix "
                  "('srun --mpi=list' shows what this Slurm has), or start trainctl launch in the "
                  "job, without srun");
}

/// Where Open MPI and PMIx keep their files.
std::string temporary_folder() {
  for (const char* variable : {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"}) {
    const std::string folder = text_in(variable);
    if (!folder.empty()) return folder;
  }
  return "/tmp";
}

/// Without place for its files, MPI ends the process with pages of text that name neither the host
/// nor the folder.
void check_temporary_folder(const LaunchedAs& launched, const std::string& host) {
  const std::string folder = temporary_folder();
  std::error_code failure;
  const std::filesystem::space_info space = std::filesystem::space(folder, failure);
  if (!failure && space.available >= least_temporary_bytes) return;
  throw Error(ExitCode::io,
              "rank " + std::to_string(launched.rank) + " (host " + host +
                  "): MPI needs place for its files in " + folder + ": " +
                  (failure ? failure.message()
                           : format_bytes(static_cast<std::int64_t>(space.available)) +
                                 " free of " + format_bytes(least_temporary_bytes)) +
                  "; make room there, or set TMPDIR");
}

std::string joining_text(double seconds, const LaunchedAs& launched, const std::string& host) {
  const std::string text = "rank " + std::to_string(launched.rank) + " of " +
                           std::to_string(launched.size) + " (host " + host +
                           "): MPI has not connected all ranks within " + format_seconds(seconds);
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
  Patience patience(seconds);
  while (!called_off_ && !patience.over()) changed_.wait_for(lock, patience.until_next_look());
  if (!called_off_) late();
}

double longest_joining(double deadline_seconds) {
  return std::clamp(deadline_seconds, 10.0, 120.0);
}

Joining::Joining(double seconds, const LaunchedAs& launched, const std::string& host)
    : end_(seconds, [seconds, launched, host] {
        set_log_rank(launched.rank, launched.size);
        log_error(joining_text(seconds, launched, host));
        // The launcher ends all ranks with the first: let the others speak, too.
        std::this_thread::sleep_for(std::chrono::duration<double>(Watch::speak_seconds));
        tell_launch(RankWord::failed, code_of_peer);
        _exit(code_of_peer);
      }) {}

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
                launched.launcher + " says this is rank " + std::to_string(launched.rank) + " of " +
                    std::to_string(launched.size) +
                    ", but MPI sees one process: the launcher and the MPI library do not know "
                    "each other. Start with mpirun, or with srun --mpi=pmix (srun --mpi=list shows "
                    "what is there)");
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw Error(ExitCode::unavailable, "this MPI library gives no MPI_THREAD_MULTIPLE");
  }
  return size;
}

}  // namespace trainctl
