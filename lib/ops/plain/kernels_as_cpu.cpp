// Linked in place of kernels_cpu.cpp where oneDNN and OpenMP are left out: the CPU runs the plain
// kernels.
#include "ops/plain/kernels.h"

namespace trainctl {

const Kernels cpu_kernels = plain_table("cpu");

}  // namespace trainctl
