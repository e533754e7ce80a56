// The kernels that the CUDA module has. All are enqueued on the context's stream, whose device must
// be the calling thread's.
#pragma once

#include "ops/cuda_attention.h"
#include "ops/kernels.h"

namespace trainctl::cuda {

void matmul(const OpContext& context, const Matmul& args);
void matmul_gelu(const OpContext& context, const MatmulGelu& args);
void matmul_gelu_backward(const OpContext& context, const MatmulGeluBackward& args);
void matmul_column_sums(const OpContext& context, const MatmulColumnSums& args);
void matmul_batch(const OpContext& context, const MatmulBatch& args);
void layernorm_forward(const OpContext& context, const LayerNormForward& args);
void layernorm_backward(const OpContext& context, const LayerNormBackward& args);
void rmsnorm_forward(const OpContext& context, const RmsNormForward& args);
void rmsnorm_backward(const OpContext& context, const RmsNormBackward& args);
void gelu_forward(const OpContext& context, const GeluForward& args);
void gelu_backward(const OpContext& context, const GeluBackward& args);
void swiglu_forward(const OpContext& context, const SwigluForward& args);
void swiglu_backward(const OpContext& context, const SwigluBackward& args);
void add(const OpContext& context, const Add& args);
void cast(const OpContext& context, const Cast& args);
void bias_gradient(const OpContext& context, const BiasGradient& args);
void dropout(const OpContext& context, const Dropout& args);
void rope(const OpContext& context, const Rope& args);
void attention_forward(const OpContext& context, const AttentionForward& args);
void attention_backward(const OpContext& context, const AttentionBackward& args);
void attention_merge(const OpContext& context, const AttentionMerge& args);
void embedding_forward(const OpContext& context, const EmbeddingForward& args);
void embedding_backward(const OpContext& context, const EmbeddingBackward& args);
void router_forward(const OpContext& context, const RouterForward& args);
void router_backward(const OpContext& context, const RouterBackward& args);
void router_losses(const OpContext& context, const RouterLosses& args);
void router_statistics(const OpContext& context, const RouterStatistics& args);
void spread_rows(const OpContext& context, const SpreadRows& args);
void collect_rows(const OpContext& context, const CollectRows& args);
void scale_rows(const OpContext& context, const ScaleRows& args);
void scale_rows_backward(const OpContext& context, const ScaleRowsBackward& args);
void bias_rows(const OpContext& context, const BiasRows& args);
void bias_rows_backward(const OpContext& context, const BiasRowsBackward& args);
void cross_entropy_stats(const OpContext& context, const CrossEntropyStats& args);
void cross_entropy_combine(const OpContext& context, const CrossEntropyCombine& args);
void cross_entropy_gradient(const OpContext& context, const CrossEntropyGradient& args);
void adamw(const OpContext& context, const Calls<AdamW>& calls);
void sgd(const OpContext& context, const Calls<Sgd>& calls);
void square_sum(const OpContext& context, const Calls<SquareSum>& calls);
void step_verdict(const OpContext& context, const StepVerdict& args);
void normal_fill(const OpContext& context, const NormalFill& args);
void swap_blocks(const OpContext& context, const SwapBlocks& args);

/// Attention by cuDNN where it was prepared for it, else by the kernels above. Where cuDNN's
/// headers are not there, cudnn/absent.cpp takes the place of the other files of that folder.
void chosen_attention_forward(const OpContext& context, const AttentionForward& args);
void chosen_attention_backward(const OpContext& context, const AttentionBackward& args);

extern const CudaAttention attention_part_of_module;

}  // namespace trainctl::cuda
