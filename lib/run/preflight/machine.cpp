#include "run/preflight/machine.h"
#include "run/records/step_records.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

namespace trainctl {

namespace {

namespace fs = std::filesystem;

/// The path, or its nearest existing parent.
fs::path nearest_existing(const fs::path& path) {
  std::error_code failure;
  fs::path at = fs::absolute(path, failure);
  while (!fs::exists(at, failure) && at.has_relative_path()) at = at.parent_path();
  return at;
}

std::optional<std::int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // no limit if the text is "max"
  return value;
}

/// The folder of this process for a controller of cgroup 1; for cgroup 2 if that is empty.
std::optional<fs::path> cgroup_of(const fs::path& root, const std::string& controller) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // such as "4:memory:/path" or "0::/path"
    std::istringstream parts(line);
    std::string number;
    std::string controllers;
    std::string path;
    std::getline(parts, number, ':');
    std::getline(parts, controllers, ':');
    std::getline(parts, path);
    const bool found =
        controller.empty()
            ? number == "0"
            : ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
    if (found) return fs::path(path).relative_path();
  }
  return std::nullopt;
}

/// Calls `visit` for the folder of this process and all folders above it, which also limit it.
template <class Visit>
void visit_cgroups(const fs::path& root, const std::string& controller, const Visit& visit) {
  const auto own = cgroup_of(root, controller);
  if (!own) return;
  const fs::path base = root / "sys/fs/cgroup" / controller;
  for (fs::path at = *own;; at = at.parent_path()) {
    visit(base / at, "/" + at.string());
    if (at.empty()) return;
  }
}

/// File pages counted in `used` that the kernel can reclaim.
std::int64_t reclaimable(const fs::path& folder) {
  std::ifstream file(folder / "memory.stat");
  std::string key;
  std::int64_t value = 0;
  std::int64_t found = 0;
  while (file >> key >> value) {
    if (key == "inactive_file" || key == "total_inactive_file") found = value;
  }
  return found;
}

void tighten(FreeMemory& room, const fs::path& folder, const std::string& name, const char* most,
             const char* used) {
  const auto limit = number_in(folder / most);
  const auto taken = number_in(folder / used);
  if (!limit || *limit <= 0 || *limit >= room.limit) return;
  room.limit = *limit;
  const std::int64_t free = *limit - taken.value_or(0) + reclaimable(folder);
  room.free = std::clamp<std::int64_t>(free, 0, std::min(room.free, *limit));
  room.of = "cgroup " + name;
}

}  // namespace

std::optional<FreeMemory> memory_room(const fs::path& root) {
  const auto total = bytes_in(root / "proc/meminfo", "MemTotal:");
  const auto free = bytes_in(root / "proc/meminfo", "MemAvailable:");
  if (!total || !free) return std::nullopt;
  FreeMemory room{.limit = *total, .free = *free};
  visit_cgroups(root, "", [&](const fs::path& folder, const std::string& name) {
    tighten(room, folder, name, "memory.max", "memory.current");
  });
  visit_cgroups(root, "memory", [&](const fs::path& folder, const std::string& name) {
    tighten(room, folder, name, "memory.limit_in_bytes", "memory.usage_in_bytes");
  });
  return room;
}

std::vector<int> allowed_processors() {
  std::vector<int> allowed;
  for (int most = CPU_SETSIZE; allowed.empty() && most <= 1 << 20; most *= 8) {
    const auto bytes = CPU_ALLOC_SIZE(most);
    cpu_set_t* set = CPU_ALLOC(most);
    if (set == nullptr) break;
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    for (int number = 0; known && number < most; ++number) {
      if (CPU_ISSET_S(number, bytes, set)) allowed.push_back(number);
    }
    CPU_FREE(set);
    if (known) break;  // otherwise the machine has more processors than the set holds
  }
  return allowed;
}

std::optional<int> core_quota(const fs::path& root) {
  std::optional<int> cores;
  const auto tighten_to = [&](double quota, double period) {
    if (quota <= 0 || period <= 0) return;
    const int share = std::max(1, static_cast<int>(std::ceil(std::min(quota / period, 1e6))));
    cores = std::min(share, cores.value_or(share));
  };
  visit_cgroups(root, "", [&](const fs::path& folder, const std::string&) {
    std::ifstream file(folder / "cpu.max");  // such as "200000 100000" or "max 100000"
    double quota = 0;
    double period = 0;
    if (file >> quota >> period) tighten_to(quota, period);
  });
  visit_cgroups(root, "cpu", [&](const fs::path& folder, const std::string&) {
    const auto quota = number_in(folder / "cpu.cfs_quota_us");  // no limit if -1
    const auto period = number_in(folder / "cpu.cfs_period_us");
    if (quota && period) tighten_to(static_cast<double>(*quota), static_cast<double>(*period));
  });
  return cores;
}

int usable_cores(const fs::path& root) {
  const auto allowed = static_cast<int>(allowed_processors().size());
  const int cores =
      allowed > 0 ? allowed : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::min(cores, core_quota(root).value_or(cores));
}

std::optional<std::int64_t> free_disk(const fs::path& path) {
  const fs::path at = nearest_existing(path);
  struct statvfs system {};
  if (::statvfs(at.c_str(), &system) != 0) return std::nullopt;
  const double bytes = static_cast<double>(system.f_bavail) * static_cast<double>(system.f_frsize);
  return static_cast<std::int64_t>(std::min(bytes, 9e18));
}

std::string why_not_writable(const fs::path& folder) {
  const fs::path at = nearest_existing(folder);
  std::error_code failure;
  if (!fs::is_directory(at, failure)) return at.string() + " is not a folder";
  if (::access(at.c_str(), W_OK | X_OK) == 0) return "";
  return at.string() + ": " + std::strerror(errno);
}

std::optional<std::int64_t> address_space_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

std::int64_t thread_stack() {
  pthread_attr_t attributes;
  std::size_t bytes = 0;
  if (pthread_attr_init(&attributes) != 0) return 0;
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return static_cast<std::int64_t>(bytes);
}

int startable_threads(int wanted) {
  std::mutex together;
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(together);  // all threads exist at once, waiting for the lock
    try {
      for (int i = 0; i < wanted; ++i) {
        threads.emplace_back([&together] { const std::lock_guard last(together); });
      }
    } catch (const std::system_error&) {  // the limit is reached
    }
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<int>(threads.size());
}

std::int64_t file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
}

std::optional<double> slurm_seconds_left() {
  const char* text = std::getenv("SLURM_JOB_END_TIME");
  if (text == nullptr) return std::nullopt;
  const double end = std::strtod(text, nullptr);
  if (end <= 0) return std::nullopt;
  return end - static_cast<double>(std::time(nullptr));
}

}  // namespace trainctl
