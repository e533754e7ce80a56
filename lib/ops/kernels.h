// A backend as a struct of functions, with one table for the CPU and one for CUDA. A null entry is
// not built for the backend; the engine refuses a plan that needs it, naming it. The public
// functions of ops (norm.cpp ...) check operands, then call these.
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

/// The fast CPU kernels of the current level (cpu_level.h), and the plain kernels that serve as
/// their reference. Both tables are complete. cpu_kernels() throws like cpu_level().
const Kernels& cpu_kernels();
extern const Kernels plain_kernels;

/// The table for a device. Throws Error{unavailable} if it is not built, or its module cannot be
/// opened.
const Kernels& kernels_for(DeviceKind device);

/// Names of the null entries, in table order.
std::vector<std::string_view> missing_kernels(const Kernels& kernels);

}  // namespace trainctl
