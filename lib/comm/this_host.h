// Facts about this host: its network interfaces and its processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

/// An IPv4 address of an interface that is up. Numbers are in the host's byte order.
struct Interface {
  std::string name;           // for example "eth0"
  std::uint32_t address = 0;  // for example 10.77.0.2
  int prefix = 32;            // bits of the network's part
  bool loopback = false;

  bool holds(std::uint32_t other) const;  // whether `other` is in the same subnet
  std::string subnet() const;             // for example "10.77.0.0/24"
};

std::vector<Interface> interfaces();
/// "eth0 10.77.0.2/24, docker0 172.17.0.1/16", without the loopback; "none" if there is none.
std::string addresses_text(const std::vector<Interface>& interfaces);
/// The name of the first interface in `subnet` ("10.77.0.0/24"); nothing if none is in it.
std::optional<std::string> interface_in(const std::vector<Interface>& interfaces,
                                        const std::string& subnet);

// Facts that the system knows about other processes of this host.

/// Whether no process has this number.
bool is_gone(long process);
/// The state of a process: 'T' stopped, 'Z' ended or unknown, '?' if it cannot be read; other
/// letters mean alive.
char state_of(long process);
/// "stopped" or "ended" if the process is; else "".
const char* trouble_of(long process);
/// The namespace of this process's number; 0 if unknown.
unsigned long process_namespace();
/// The cores that this process may use.
int cores_of_this_process();

}  // namespace trainctl
