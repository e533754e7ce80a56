// The memory, cores, files and time that this process may use on its machine, with the limits that
// a container, a scheduler or a shell has set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

/// Bytes of memory; `limit` is the most that there can be, `free` what there is now.
struct FreeMemory {
  std::int64_t limit = 0;
  std::int64_t free = 0;
  std::string of = "this machine";  // what limits it: else "cgroup /path"
};

/// The tightest of the machine and the memory controllers of this process (cgroup 2 and 1) under
/// `root`, which is "/" except in tests. Nothing where the system does not tell.
std::optional<FreeMemory> memory_room(const std::filesystem::path& root = "/");

/// The processors that this process may run on, ascending.
std::vector<int> allowed_processors();
/// Cores that its cgroups' share of time amounts to, rounded up (cgroup 2 and 1); nothing without
/// one.
std::optional<int> core_quota(const std::filesystem::path& root = "/");
/// Cores that this process can use: no more than either.
int usable_cores(const std::filesystem::path& root = "/");

/// Free bytes for this user on the file system of `path`, or of its nearest folder that exists.
std::optional<std::int64_t> free_disk(const std::filesystem::path& path);

/// Why this user cannot make files in `folder`, or in the nearest folder that exists, where it
/// would be made; "": they can be made.
std::string why_not_writable(const std::filesystem::path& folder);

/// Bytes of address space that this process may have; nothing without a limit (ulimit -v).
std::optional<std::int64_t> address_space_limit();

/// Address space that the stack of one more thread takes.
std::int64_t thread_stack();
/// The number of threads that this process can start in addition to its present ones, at most
/// `wanted`.
int startable_threads(int wanted);

/// Files that this process may have open.
std::int64_t file_limit();

/// Seconds until Slurm ends the job of this process (SLURM_JOB_END_TIME); nothing outside a job.
std::optional<double> slurm_seconds_left();

}  // namespace trainctl
