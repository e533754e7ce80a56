// The temporary memory that an op may use while it runs. One owner, so that the plan can count it
// and the engine can allocate it before the first step; ops cut their work so that it is enough.
#pragma once

#include <cstdint>

#include "base/kinds.h"

namespace trainctl {

/// Bytes of scratch per compute thread of a rank; aligned to 64 bytes.
inline constexpr std::int64_t scratch_bytes_per_thread = std::int64_t{4} << 20;

/// For products on a CUDA device: what NVIDIA advises for Hopper, and room before it for one
/// rounded bias.
inline constexpr std::int64_t cuda_product_bytes = std::int64_t{32} << 20;
inline constexpr std::int64_t cuda_bias_bytes = std::int64_t{1} << 20;

/// Scratch of a rank. A CUDA device has that of one thread, and then that of its products.
constexpr std::int64_t scratch_bytes(DeviceKind device, std::int64_t threads) {
  if (device == DeviceKind::cpu) return threads * scratch_bytes_per_thread;
  return scratch_bytes_per_thread + cuda_bias_bytes + cuda_product_bytes;
}

}  // namespace trainctl
