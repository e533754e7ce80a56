// Where tensors are and kernels run.
#pragma once

#include <cstdint>

namespace trainctl {

enum class DeviceKind : std::uint8_t { cpu, cuda };

}  // namespace trainctl
