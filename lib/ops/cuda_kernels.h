// The kernels of the CUDA module, a shared library that is opened when they are first asked for.
#pragma once

#include "ops/kernels.h"

namespace trainctl {

/// Throws Error{unavailable} when the module is not there or cannot be opened.
const Kernels& cuda_module_kernels();

}  // namespace trainctl
