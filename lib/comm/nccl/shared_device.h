// What NCCL must be told so that several ranks of one machine may use one device, which it refuses
// otherwise. It is for trying NCCL where there is one device; it is slow.
#pragma once

#include <string>
#include <vector>

namespace trainctl {

struct EnvironmentEntry {
  std::string name, value;
  bool operator==(const EnvironmentEntry&) const = default;
};

/// Entries that NCCL reads at its first communicator, for a rank that is a process of its own;
/// `version` as ncclGetVersion gives it (23003 is 2.30.3). From 2.30.3 on NCCL has an entry for it.
/// Before, each rank takes the name of a host of its own (NCCL, src/misc/utils.cc, getHostHash), so
/// that they meet over sockets. One channel, because kernels of NCCL that wait for each other must
/// be on the device together.
std::vector<EnvironmentEntry> environment_to_share(int version, const std::string& host, int rank);

}  // namespace trainctl
