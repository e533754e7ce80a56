#include "ops/plain/kernels.h"

namespace trainctl {

const Kernels plain_kernels = plain_table("plain");

}  // namespace trainctl
