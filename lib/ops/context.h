// What every op is given: where to run, with which kernels, and its temporary memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/stream.h"

namespace trainctl {

struct Kernels;

struct OpContext {
  const Kernels* kernels = nullptr;  // of the device that `stream` belongs to
  Stream* stream = nullptr;
  std::byte* scratch = nullptr;    // 64-byte aligned; contents are undefined between ops
  std::int64_t scratch_bytes = 0;  // scratch_bytes_per_thread x compute threads
};

}  // namespace trainctl
