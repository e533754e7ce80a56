#include "comm/this_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include "base/text.h"

namespace trainctl {

namespace {

std::uint32_t number_of(const sockaddr* address) {
  sockaddr_in inet{};
  std::memcpy(&inet, address, sizeof inet);
  return ntohl(inet.sin_addr.s_addr);
}

std::string text_of(std::uint32_t address) {
  const in_addr number{htonl(address)};
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &number, text, sizeof text);
  return text;
}

std::uint32_t mask_of(int prefix) { return prefix == 0 ? 0 : ~std::uint32_t{0} << (32 - prefix); }

}  // namespace

bool Interface::holds(std::uint32_t other) const {
  return (other & mask_of(prefix)) == (address & mask_of(prefix));
}

std::string Interface::subnet() const {
  return formatted("{}/{}", text_of(address & mask_of(prefix)), prefix);
}

std::vector<Interface> interfaces() {
  std::vector<Interface> found;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return found;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || one->ifa_netmask == nullptr) continue;
    found.push_back({.name = one->ifa_name,
                     .address = number_of(one->ifa_addr),
                     .prefix = std::popcount(number_of(one->ifa_netmask)),
                     .loopback = (one->ifa_flags & IFF_LOOPBACK) != 0});
  }
  freeifaddrs(first);
  return found;
}

std::string addresses_text(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const Interface& one : interfaces) {
    if (one.loopback) continue;
    text += formatted("{}{} {}/{}", text.empty() ? "" : ", ", one.name, text_of(one.address),
                      one.prefix);
  }
  return text.empty() ? "none" : text;
}

std::optional<std::string> interface_in(const std::vector<Interface>& interfaces,
                                        const std::string& subnet) {
  for (const Interface& one : interfaces) {
    if (one.subnet() == subnet) return one.name;
  }
  return std::nullopt;
}

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
