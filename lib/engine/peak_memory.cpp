#include "engine/peak_memory.h"

#include <fstream>
#include <string>

namespace trainctl {

std::int64_t peak_resident_bytes() {
  // getrusage would also count what the process was before exec.
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    std::int64_t kibibytes = 0;
    if (key == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
    std::getline(status, key);
  }
  return 0;
}

}  // namespace trainctl
