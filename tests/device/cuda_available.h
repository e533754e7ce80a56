// Whether the tests that need a CUDA device can run here. They say so and pass where they cannot.
#pragma once

#include <cstdio>

#include "device/cuda_device.h"

/// False, with a message that CTest recognises, where the module finds no usable device. A module
/// that is missing or belongs to another build still fails the test.
inline bool cuda_available() {
  const auto* module = static_cast<const trainctl::CudaModule*>(trainctl::open_cuda_part(
      trainctl::cuda_module_file(), "trainctl_cuda_device", sizeof(trainctl::CudaModule)));
  const std::string reason = module->why_unusable();
  if (!reason.empty()) std::printf("skipped: %s\n", reason.c_str());
  return reason.empty();
}
