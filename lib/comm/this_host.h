// Facts about this host: its network interfaces and its processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

/// An IPv4 address of an interface that is up. Numbers are in the host's byte order.
struct Interface {
  std::string name;           // "eth0"
  std::uint32_t address = 0;  // 10.77.0.2
  int prefix = 32;            // bits of the network's part
  bool loopback = false;

  bool holds(std::uint32_t other) const;  // in the same subnet
  std::string subnet() const;             // "10.77.0.0/24"
};

std::vector<Interface> interfaces();
/// "eth0 10.77.0.2/24, docker0 172.17.0.1/16" without the loopback; "none".
std::string addresses_text(const std::vector<Interface>& interfaces);
/// The name of the first interface in `subnet` ("10.77.0.0/24"); none where that is something else.
std::optional<std::string> interface_in(const std::vector<Interface>& interfaces,
                                        const std::string& subnet);

// Facts that the system knows about other processes of this host.

/// No process has this number.
bool is_gone(long process);
/// 'T' stopped, 'Z' ended, others alive; 'Z' too when there is no such process, '?' when it cannot
/// be seen.
char state_of(long process);
/// "stopped", "ended" or "".
const char* trouble_of(long process);
/// The namespace in which process numbers of this process hold; 0: unknown.
unsigned long process_namespace();
/// The cores that this process may use.
int cores_of_this_process();

}  // namespace trainctl
