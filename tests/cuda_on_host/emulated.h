// How the built program is started on the emulated devices.
#pragma once

#include <string>

/// An entry of its environment.
inline const std::string emulated = "TRAINCTL_CUDA_MODULE=" TRAINCTL_EMULATED_CUDA;
