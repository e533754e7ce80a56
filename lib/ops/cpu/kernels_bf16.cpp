// The bf16 kernels that use AVX-512's bf16 instructions or AMX's tiles.
#include "ops/cpu/kernels.h"
#include "ops/cpu/level.h"
#include "ops/cpu/matmul/products.h"

namespace trainctl {

namespace {

constexpr Kernels changed_kernels() {
  Kernels kernels{};
  kernels.attention_forward = attention_forward_cpu;
  kernels.attention_backward = attention_backward_cpu;
  return kernels;
}

#ifdef __AMX_BF16__
constexpr auto tiles = matmul_amx;
#else
constexpr auto tiles = matmul_tiles;
#endif

}  // namespace

}  // namespace trainctl

const trainctl::LevelKernels trainctl_level{
    .kernels = trainctl::changed_kernels(), .tiles = trainctl::tiles, .widened = nullptr};
