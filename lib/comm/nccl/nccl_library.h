// NCCL's library, which the CUDA module opens when it first needs it: devices can be used without.
// For sources of the CUDA module.
#pragma once

#include <string>

namespace trainctl {

/// Why NCCL cannot be used in this process; "" if it can.
std::string nccl_missing();

}  // namespace trainctl
