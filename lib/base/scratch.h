// The temporary memory that an op may use while it runs. One constant, so that the plan can count
// it and the engine can allocate it before the first step; ops cut their work so that it is enough.
#pragma once

#include <cstdint>

namespace trainctl {

/// Bytes of scratch per compute thread of a rank; aligned to 64 bytes.
inline constexpr std::int64_t scratch_bytes_per_thread = std::int64_t{4} << 20;

}  // namespace trainctl
