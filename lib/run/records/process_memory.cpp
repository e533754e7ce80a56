#include "run/records/process_memory.h"

#include <unistd.h>

#include <fstream>
#include <string>

namespace trainctl {

namespace {

/// "VmHWM:   1234 kB" in such a file, or 0.
std::int64_t bytes_in(const char* path, const std::string& wanted) {
  std::ifstream file(path);
  std::string key;
  while (file >> key) {
    std::int64_t kibibytes = 0;
    if (key == wanted && file >> kibibytes) return kibibytes * 1024;
    std::getline(file, key);
  }
  return 0;
}

struct Pages {
  std::int64_t all = 0;
  std::int64_t resident = 0;
};

// A file that is short to read: this is asked after each step.
Pages pages_now() {
  std::ifstream file("/proc/self/statm");
  Pages pages;
  return file >> pages.all >> pages.resident ? pages : Pages{};
}

}  // namespace

// getrusage would also count what the process was before exec.
std::int64_t peak_resident_bytes() { return bytes_in("/proc/self/status", "VmHWM:"); }

std::int64_t resident_bytes() { return pages_now().resident * ::sysconf(_SC_PAGESIZE); }

std::int64_t virtual_bytes() { return pages_now().all * ::sysconf(_SC_PAGESIZE); }

std::int64_t available_bytes() { return bytes_in("/proc/meminfo", "MemAvailable:"); }

}  // namespace trainctl
