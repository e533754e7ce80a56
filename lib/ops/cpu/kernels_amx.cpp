// The kernels that the tile registers of AMX change.
#include "ops/cpu/kernels.h"
#include "ops/cpu/level.h"
#include "ops/cpu/matmul/amx.h"
#include "ops/cpu/matmul/tiles.h"

namespace trainctl {

namespace {

constexpr Kernels changed_kernels() {
  Kernels kernels{};
  kernels.attention_forward = attention_forward_cpu;
  kernels.attention_backward = attention_backward_cpu;
  return kernels;
}

bool multiply_in_tiles(const OpContext& context, const Matmul& args) {
  if (args.a.dtype == DType::bf16) return matmul_amx(context, args);
  return matmul_tiles(context, args);
}

}  // namespace

}  // namespace trainctl

const trainctl::LevelKernels trainctl_level{.kernels = trainctl::changed_kernels(),
                                            .tiles = trainctl::multiply_in_tiles,
                                            .widened = nullptr};
