// The memory that cuBLASLt works in: one block per stream that runs matrix products, made at the
// stream's first product and kept by the CUDA module until the process ends.
#pragma once

#include <cstdint>

namespace trainctl {

/// Bytes per stream: what NVIDIA advises for Hopper, and room before it for one rounded bias.
inline constexpr std::int64_t cuda_product_bytes = std::int64_t{32} << 20;
inline constexpr std::int64_t cuda_bias_bytes = std::int64_t{1} << 20;
inline constexpr std::int64_t cuda_workspace_bytes = cuda_bias_bytes + cuda_product_bytes;

}  // namespace trainctl
