// What this process has used, to be set beside what the plan said.
#pragma once

#include <cstdint>

namespace trainctl {

/// The most resident memory that this process has had since it started (VmHWM), in bytes; 0 where
/// the system does not tell.
std::int64_t peak_resident_bytes();
/// What new memory this machine can give, or 0 where it does not say.
std::int64_t available_bytes();

}  // namespace trainctl
