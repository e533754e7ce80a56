// The memory, cores, files and time that this process may use on its machine, within the limits set
// by a container, a scheduler or a shell.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

/// Memory [bytes]: `limit` is the greatest possible use, `free` is available now.
struct FreeMemory {
  std::int64_t limit = 0;
  std::int64_t free = 0;
  std::string of = "this machine";  // the source of the limit: this machine or "cgroup /path"
};

/// The tightest limit among the machine and the memory cgroups of this process (versions 2 and 1)
/// under `root`, which is "/" except in tests. None if the system reports nothing.
std::optional<FreeMemory> memory_room(const std::filesystem::path& root = "/");

/// The processors that this process may run on, ascending.
std::vector<int> allowed_processors();
/// Cores that correspond to the cgroup's share of time, rounded up (cgroup 2 and 1); none if no
/// cgroup limits them.
std::optional<int> core_quota(const std::filesystem::path& root = "/");
/// Cores that this process can use: the smaller of allowed processors and quota.
int usable_cores(const std::filesystem::path& root = "/");

/// Free bytes for this user on the file system of `path`, or of its nearest existing parent.
std::optional<std::int64_t> free_disk(const std::filesystem::path& path);

/// The reason why this user cannot create files in `folder`, or in its nearest existing parent; ""
/// if he can.
std::string why_not_writable(const std::filesystem::path& folder);

/// Bytes of address space that this process may have; nothing without a limit (ulimit -v).
std::optional<std::int64_t> address_space_limit();

/// Bytes of address space for the stack of one more thread.
std::int64_t thread_stack();
/// The number of threads that this process can start in addition to its present ones, at most
/// `wanted`.
int startable_threads(int wanted);

/// The number of files that this process may have open.
std::int64_t file_limit();

/// Seconds until Slurm ends the job of this process (SLURM_JOB_END_TIME); none outside a job.
std::optional<double> slurm_seconds_left();

}  // namespace trainctl
