// Whether ranks of one machine share its devices.
#pragma once

#include <cstdint>

namespace trainctl {

/// Whether ranks take the devices of their machine in turns, and whether NCCL carries what those
/// that share one exchange: it does between processes, one for each rank.
enum class DeviceSharing : std::uint8_t { none, without_nccl, nccl };
constexpr bool shares(DeviceSharing how) { return how != DeviceSharing::none; }

}  // namespace trainctl
