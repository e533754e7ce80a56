// The kernels of one level, as one table. The sources of a level are compiled with its instructions
// and linked into one object in which only the table is visible, so that no other code can use them
// by accident; CMakeLists.txt defines this. Internal to lib/ops/cpu.
#pragma once

#include "base/dtype.h"
#include "ops/cpu_level.h"
#include "ops/kernels.h"

namespace trainctl {

struct LevelKernels {
  Kernels kernels;  // all but matmul; null for entries that a bf16-only level leaves unchanged
  /// Products in register tiles (matmul/tiles.h) and through fp32 (matmul/widened.h).
  bool (*tiles)(const OpContext&, const Matmul&);
  void (*widened)(const OpContext&, const Matmul&);
};

}  // namespace trainctl

extern "C" {
/// The table, under the name that the level's own sources use.
extern const trainctl::LevelKernels trainctl_level;
/// The tables of all levels, under the names that other code uses. Tables above v3 do not exist in
/// a build for one machine that lacks the instructions (levels.cmake).
extern const trainctl::LevelKernels trainctl_level_v3;
extern const trainctl::LevelKernels trainctl_level_avx512;
extern const trainctl::LevelKernels trainctl_level_avx512_bf16;
extern const trainctl::LevelKernels trainctl_level_amx;
}

namespace trainctl {

/// The kernels of a level for operands of this type. If a level multiplies pairs of bf16, it has
/// its own kernels for bf16 only; for other types its base's kernels serve. `level` must be in this
/// build, and not `plain`.
const LevelKernels& part_of(CpuLevel level, DType operand);

// Products on the CPU: the choice of implementation at each level. Compiled for every processor;
// the implementations are kernels of a level (cpu/level.h) or oneDNN. Internal to lib/ops.

/// The kernel for products at `level`, v3 or above. Its choice depends only on the call and not on
/// timing, so that equal runs stay bit-identical.
Kernel<Matmul> matmul_kernel(CpuLevel level);

}  // namespace trainctl
