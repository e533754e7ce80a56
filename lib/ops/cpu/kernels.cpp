#include "ops/cpu/kernels.h"

#include "ops/cpu/level.h"
#include "ops/cpu/matmul/products.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

/// consteval, because some referenced entries have no fast kernel and must not be linked.
consteval Kernels table_of_level() {
  Kernels table{
      .name = "cpu",
#define KERNEL(entry, Args) .entry = entry##_cpu,
#include "ops/kernels.def"
#undef KERNEL
  };
  table.matmul = nullptr;                 // matmul.cpp chooses the kernel
  table.matmul_gelu = matmul_gelu_plain;  // calls the table's own kernels
  table.matmul_gelu_backward = matmul_gelu_backward_plain;
  table.matmul_column_sums = matmul_column_sums_plain;
  table.matmul_batch = matmul_batch_plain;
  table.attention_merge = attention_merge_plain;  // cheap compared with attention
  table.largest = largest_plain;                  // one number per query and head
  table.router_forward = router_forward_plain;    // few numbers per token
  table.router_backward = router_backward_plain;
  table.router_losses = router_losses_plain;
  table.router_statistics = router_statistics_plain;
  table.cross_entropy_combine = cross_entropy_combine_plain;  // only a few rows
  table.step_verdict = step_verdict_plain;
  table.swap_blocks = swap_blocks_plain;  // only copies
  table.copy_rows = copy_rows_plain;      // only copies
  return table;
}

constexpr Kernels kernels = table_of_level();

}  // namespace

}  // namespace trainctl

const trainctl::LevelKernels trainctl_level{.kernels = trainctl::kernels,
                                            .tiles = trainctl::matmul_tiles,
                                            .widened = trainctl::matmul_widened};
