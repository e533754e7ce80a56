// The kernels of one level are one table to the rest of the program. The sources of a level are
// compiled with that level's instructions and become one object in which only the table is visible,
// so that no other code can come to use them; CMakeLists.txt says how. Internal to lib/ops/cpu.
#pragma once

#include "base/dtype.h"
#include "ops/cpu_level.h"
#include "ops/kernels.h"

namespace trainctl {

struct LevelKernels {
  Kernels kernels;  // without matmul; entries are null that a level for bf16 only does not change
  /// Products in register tiles (matmul/tiles.h) and through fp32 (matmul/widened.h).
  bool (*tiles)(const OpContext&, const Matmul&);
  void (*widened)(const OpContext&, const Matmul&);
};

}  // namespace trainctl

extern "C" {
/// The table, as the level's own sources name it.
extern const trainctl::LevelKernels trainctl_level;
/// The tables of all levels, as everybody else sees them. Those above v3 do not exist in a build
/// for one machine that lacks the instructions (levels.cmake).
extern const trainctl::LevelKernels trainctl_level_v3;
extern const trainctl::LevelKernels trainctl_level_avx512;
extern const trainctl::LevelKernels trainctl_level_avx512_bf16;
extern const trainctl::LevelKernels trainctl_level_amx;
}

namespace trainctl {

/// The part of a level for operands of a type. A level that multiplies pairs of bf16 has kernels of
/// its own for bf16 only: those for other types would be the same as in its base. `level` must be
/// in this build, and not `plain`.
const LevelKernels& part_of(CpuLevel level, DType operand);

// Products on the CPU: which way each goes at each level. Compiled for every processor; the ways
// themselves are kernels of a level (cpu/level.h) or oneDNN. Internal to lib/ops.

/// The kernel that multiplies at `level`, one of v3 and above. Equal calls always go the same way:
/// nothing is timed, so that equal runs stay bit-identical.
Kernel<Matmul> matmul_kernel(CpuLevel level);

}  // namespace trainctl
