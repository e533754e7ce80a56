#include "comm/host/process_state.h"

#include <sched.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <string>

namespace trainctl {

bool is_gone(long process) { return ::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH; }

char state_of(long process) {
  if (is_gone(process)) return 'Z';
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t end_of_name = text.rfind(") ");
  return end_of_name == std::string::npos ? '?' : text[end_of_name + 2];
}

const char* trouble_of(long process) {
  switch (state_of(process)) {
    case 'T':
    case 't': return "stopped";
    case 'Z':
    case 'X': return "ended";
    default: return "";
  }
}

unsigned long process_namespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

int cores_of_this_process() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace trainctl
