// Where a job runs, as far as its plan depends on it.
#pragma once

#include <cstdint>

#include "base/device_kind.h"

namespace trainctl {

/// The machine, as far as a plan depends on it. The caller who asks for a plan fills it in; the
/// plan never queries the machine.
struct Site {
  std::int64_t world_size = 1;
  std::int64_t ranks_per_host = 1;
  std::int64_t cores_per_host = 1;
  bool ranks_are_threads =
      false;  // ranks are threads of one process: no staging, one program for all
  DeviceKind device = DeviceKind::cpu;  // what parallel.device: auto means there
  bool cudnn = false;                   // what parallel.attention_backend: auto may take there
  bool trains = true;                   // false: only forward passes (evaluate, generate)
};

}  // namespace trainctl
