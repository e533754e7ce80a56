// Whether a rank's memory fits: into the limit that is given, or which usual size it needs.
#pragma once

#include <cstdint>
#include <string>

#include "formats/print/print.h"

namespace trainctl {

inline constexpr double gibibyte = 1024.0 * 1024 * 1024;  // bytes

struct MemoryFit {
  double gibibytes = 0;
  std::string source;     // "--memory-limit"; empty: no limit is given, the least usual size
  std::int64_t free = 0;  // bytes of the limit that the fullest rank leaves; below 0: too few
  bool fits() const { return free >= 0; }
};

/// Of the memory that the tensors are in (MemoryEstimate::device). By `input.memory_limit`, else by
/// recompute.memory_limit, on a CUDA device by cluster.device_memory, else the least of the sizes
/// that hosts and devices have.
MemoryFit memory_fit(const PrintInput& input);

/// "fits in 16 GiB, 6.03 GiB free (--memory-limit)" or "does not fit in 8 GiB: 1.97 GiB too much
/// (...)"
std::string fit_text(const MemoryFit& fit);

}  // namespace trainctl
