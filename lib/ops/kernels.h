// A backend as a struct of functions: one table for the CPU, one for CUDA. A null entry is not
// built there; the engine refuses a plan that needs it, by name. The front doors (norm.cpp ...)
// check and then call these.
#pragma once

#include <string_view>
#include <vector>

#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/optimizer.h"
#include "ops/rope.h"
#include "ops/router.h"
#include "ops/rows.h"

namespace trainctl {

template <class Args>
using Kernel = void (*)(const OpContext&, const Args&);

struct Kernels {
  std::string_view name;
#define KERNEL(entry, Args) Kernel<Args> entry;
#include "ops/kernels.def"
#undef KERNEL
};

/// The fast CPU kernels of the level in use (cpu_level.h), and the plain ones that are their
/// oracle. Both are complete. cpu_kernels() throws as cpu_level() does.
const Kernels& cpu_kernels();
extern const Kernels plain_kernels;

/// The table for a device. Throws Error{unavailable} when it is not built or its module cannot be
/// opened.
const Kernels& kernels_for(DeviceKind device);

/// Names of the entries that are null, in table order.
std::vector<std::string_view> missing_kernels(const Kernels& kernels);

}  // namespace trainctl
