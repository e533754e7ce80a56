// The plain kernels, one per entry of Kernels: the textbook loops that the fast ones are tested
// against and that the sanitizer builds run. Arguments were checked by the front doors. Internal to
// lib/ops.
#pragma once

#include "ops/kernels.h"

namespace trainctl {

void matmul_plain(const OpContext& context, const Matmul& args);
void matmul_gelu_plain(const OpContext& context, const MatmulGelu& args);
void matmul_gelu_backward_plain(const OpContext& context, const MatmulGeluBackward& args);
void matmul_column_sums_plain(const OpContext& context, const MatmulColumnSums& args);
void matmul_batch_plain(const OpContext& context, const MatmulBatch& args);
void layernorm_forward_plain(const OpContext& context, const LayerNormForward& args);
void layernorm_backward_plain(const OpContext& context, const LayerNormBackward& args);
void rmsnorm_forward_plain(const OpContext& context, const RmsNormForward& args);
void rmsnorm_backward_plain(const OpContext& context, const RmsNormBackward& args);
void gelu_forward_plain(const OpContext& context, const GeluForward& args);
void gelu_backward_plain(const OpContext& context, const GeluBackward& args);
void swiglu_forward_plain(const OpContext& context, const SwigluForward& args);
void swiglu_backward_plain(const OpContext& context, const SwigluBackward& args);
void add_plain(const OpContext& context, const Add& args);
void cast_plain(const OpContext& context, const Cast& args);
void bias_gradient_plain(const OpContext& context, const BiasGradient& args);
void dropout_plain(const OpContext& context, const Dropout& args);
void rope_plain(const OpContext& context, const Rope& args);
void attention_forward_plain(const OpContext& context, const AttentionForward& args);
void attention_backward_plain(const OpContext& context, const AttentionBackward& args);
void attention_merge_plain(const OpContext& context, const AttentionMerge& args);
void embedding_forward_plain(const OpContext& context, const EmbeddingForward& args);
void embedding_backward_plain(const OpContext& context, const EmbeddingBackward& args);
void router_forward_plain(const OpContext& context, const RouterForward& args);
void router_backward_plain(const OpContext& context, const RouterBackward& args);
void router_losses_plain(const OpContext& context, const RouterLosses& args);
void router_statistics_plain(const OpContext& context, const RouterStatistics& args);
void spread_rows_plain(const OpContext& context, const SpreadRows& args);
void collect_rows_plain(const OpContext& context, const CollectRows& args);
void scale_rows_plain(const OpContext& context, const ScaleRows& args);
void scale_rows_backward_plain(const OpContext& context, const ScaleRowsBackward& args);
void bias_rows_plain(const OpContext& context, const BiasRows& args);
void bias_rows_backward_plain(const OpContext& context, const BiasRowsBackward& args);
void cross_entropy_stats_plain(const OpContext& context, const CrossEntropyStats& args);
void cross_entropy_combine_plain(const OpContext& context, const CrossEntropyCombine& args);
void cross_entropy_gradient_plain(const OpContext& context, const CrossEntropyGradient& args);
void adamw_plain(const OpContext& context, const AdamW& args);
void sgd_plain(const OpContext& context, const Sgd& args);
void square_sum_plain(const OpContext& context, const SquareSum& args);
void step_verdict_plain(const OpContext& context, const StepVerdict& args);
void normal_fill_plain(const OpContext& context, const NormalFill& args);
void swap_blocks_plain(const OpContext& context, const SwapBlocks& args);

/// The complete table of the plain kernels, under the name of the backend that it stands for.
constexpr Kernels plain_table(std::string_view name) {
  return Kernels{
      .name = name,
      .matmul = matmul_plain,
      .matmul_gelu = matmul_gelu_plain,
      .matmul_gelu_backward = matmul_gelu_backward_plain,
      .matmul_column_sums = matmul_column_sums_plain,
      .matmul_batch = matmul_batch_plain,
      .layernorm_forward = layernorm_forward_plain,
      .layernorm_backward = layernorm_backward_plain,
      .rmsnorm_forward = rmsnorm_forward_plain,
      .rmsnorm_backward = rmsnorm_backward_plain,
      .gelu_forward = gelu_forward_plain,
      .gelu_backward = gelu_backward_plain,
      .swiglu_forward = swiglu_forward_plain,
      .swiglu_backward = swiglu_backward_plain,
      .add = add_plain,
      .cast = cast_plain,
      .bias_gradient = bias_gradient_plain,
      .dropout = dropout_plain,
      .rope = rope_plain,
      .attention_forward = attention_forward_plain,
      .attention_backward = attention_backward_plain,
      .attention_merge = attention_merge_plain,
      .embedding_forward = embedding_forward_plain,
      .embedding_backward = embedding_backward_plain,
      .router_forward = router_forward_plain,
      .router_backward = router_backward_plain,
      .router_losses = router_losses_plain,
      .router_statistics = router_statistics_plain,
      .spread_rows = spread_rows_plain,
      .collect_rows = collect_rows_plain,
      .scale_rows = scale_rows_plain,
      .scale_rows_backward = scale_rows_backward_plain,
      .bias_rows = bias_rows_plain,
      .bias_rows_backward = bias_rows_backward_plain,
      .cross_entropy_stats = cross_entropy_stats_plain,
      .cross_entropy_combine = cross_entropy_combine_plain,
      .cross_entropy_gradient = cross_entropy_gradient_plain,
      .adamw = each_call<AdamW, adamw_plain>,
      .sgd = each_call<Sgd, sgd_plain>,
      .square_sum = each_call<SquareSum, square_sum_plain>,
      .step_verdict = step_verdict_plain,
      .normal_fill = normal_fill_plain,
      .swap_blocks = swap_blocks_plain,
  };
}

}  // namespace trainctl
