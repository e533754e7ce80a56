// What this process has used, for comparison with the plan.
#pragma once

#include <cstdint>

namespace trainctl {

/// The peak resident memory of this process (VmHWM), in bytes; 0 if the system does not report it.
std::int64_t peak_resident_bytes();
/// The resident memory of this process now, in bytes; 0 as above.
std::int64_t resident_bytes();
/// The address space of this process now, in bytes; 0 as above.
std::int64_t virtual_bytes();
/// The memory that this machine can still allocate, or 0 if it does not report it.
std::int64_t available_bytes();

}  // namespace trainctl
