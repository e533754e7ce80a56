#include "ops/cpu/kernels.h"

#include "ops/cpu/level.h"
#include "ops/cpu/matmul/tiles.h"
#include "ops/cpu/matmul/widened.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

constexpr Kernels kernels{
    .name = "cpu",
    .matmul = nullptr,                 // matmul.cpp chooses
    .matmul_gelu = matmul_gelu_plain,  // by the table's own kernels
    .matmul_gelu_backward = matmul_gelu_backward_plain,
    .matmul_column_sums = matmul_column_sums_plain,
    .matmul_batch = matmul_batch_plain,
    .layernorm_forward = layernorm_forward_cpu,
    .layernorm_backward = layernorm_backward_cpu,
    .rmsnorm_forward = rmsnorm_forward_cpu,
    .rmsnorm_backward = rmsnorm_backward_cpu,
    .gelu_forward = gelu_forward_cpu,
    .gelu_backward = gelu_backward_cpu,
    .swiglu_forward = swiglu_forward_cpu,
    .swiglu_backward = swiglu_backward_cpu,
    .add = add_cpu,
    .cast = cast_cpu,
    .bias_gradient = bias_gradient_cpu,
    .dropout = dropout_cpu,
    .rope = rope_cpu,
    .attention_forward = attention_forward_cpu,
    .attention_backward = attention_backward_cpu,
    .attention_merge = attention_merge_plain,  // little beside attention itself
    .embedding_forward = embedding_forward_cpu,
    .embedding_backward = embedding_backward_cpu,
    .router_forward = router_forward_plain,  // few numbers for each token
    .router_backward = router_backward_plain,
    .router_losses = router_losses_plain,
    .router_statistics = router_statistics_plain,
    .spread_rows = spread_rows_cpu,
    .collect_rows = collect_rows_cpu,
    .scale_rows = scale_rows_cpu,
    .scale_rows_backward = scale_rows_backward_cpu,
    .bias_rows = bias_rows_cpu,
    .bias_rows_backward = bias_rows_backward_cpu,
    .cross_entropy_stats = cross_entropy_stats_cpu,
    .cross_entropy_combine = cross_entropy_combine_plain,  // a few rows: nothing to gain
    .cross_entropy_gradient = cross_entropy_gradient_cpu,
    .adamw = each_call<AdamW, adamw_cpu>,
    .sgd = each_call<Sgd, sgd_cpu>,
    .square_sum = each_call<SquareSum, square_sum_cpu>,
    .step_verdict = step_verdict_plain,
    .normal_fill = normal_fill_cpu,
    .swap_blocks = swap_blocks_plain,  // copies
};

}  // namespace

}  // namespace trainctl

const trainctl::LevelKernels trainctl_level{.kernels = trainctl::kernels,
                                            .tiles = trainctl::matmul_tiles,
                                            .widened = trainctl::matmul_widened};
