// cuDNN's attention, as the CUDA module offers it; see docs/gpu.md.
#pragma once

#include <cstdint>
#include <string>

#include "base/attention_part.h"
#include "base/dtype.h"

namespace trainctl {

/// The module's table. All throw Error{unavailable} where the module was built without cuDNN's
/// headers or the library is not there.
struct CudaAttention {
  /// Of the library: 91900 is 9.19.0.
  std::int64_t (*version)();
  /// Makes the plans of both passes for parts and the calling thread's device, once for the
  /// process. Calls of attention with these extents, a context that has the parts' bytes behind its
  /// other scratch, and neither dropout, documents nor runs then go to cuDNN.
  /// Throws where cuDNN refuses or needs more memory.
  void (*prepare)(const AttentionExtents& extents, const AttentionParts& parts, DType dtype);
  /// Whether it could on a device that `json` describes, which need not be there: the bytes that
  /// the passes need, those of cuDNN and those beside them.
  std::int64_t (*check)(const AttentionExtents& extents, DType dtype, const std::string& json);
};

/// Opens the module; throws Error{unavailable} without one. A device is not needed.
const CudaAttention& cuda_attention();

}  // namespace trainctl
