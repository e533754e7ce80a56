// Temporary memory for a running op. The plan counts it and the engine allocates it before the
// first step, both by this header; ops divide their work to fit into it.
#pragma once

#include <cstdint>

#include "base/kinds.h"

namespace trainctl {

/// Bytes of scratch per compute thread of a rank; aligned to 64 bytes.
inline constexpr std::int64_t scratch_bytes_per_thread = std::int64_t{4} << 20;

/// Scratch for matrix products on a CUDA device: NVIDIA's recommended workspace for Hopper, after
/// space for one bias in reduced precision.
inline constexpr std::int64_t cuda_product_bytes = std::int64_t{32} << 20;
inline constexpr std::int64_t cuda_bias_bytes = std::int64_t{1} << 20;

/// Scratch of a rank [bytes]. A CUDA device has the scratch of one thread, then that of products.
constexpr std::int64_t scratch_bytes(DeviceKind device, std::int64_t threads) {
  if (device == DeviceKind::cpu) return threads * scratch_bytes_per_thread;
  return scratch_bytes_per_thread + cuda_bias_bytes + cuda_product_bytes;
}

}  // namespace trainctl
