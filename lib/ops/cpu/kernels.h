// The fast CPU kernels, one per entry of Kernels but matmul (matmul.h); each is compiled once for
// every level (level.h). Arguments were checked by the front doors; the
// work runs in the calling thread and those that help it and is done on return. Internal to
// lib/ops.
#pragma once

#include "ops/kernels.h"

namespace trainctl {

void layernorm_forward_cpu(const OpContext& context, const LayerNormForward& args);
void layernorm_backward_cpu(const OpContext& context, const LayerNormBackward& args);
void rmsnorm_forward_cpu(const OpContext& context, const RmsNormForward& args);
void rmsnorm_backward_cpu(const OpContext& context, const RmsNormBackward& args);
void gelu_forward_cpu(const OpContext& context, const GeluForward& args);
void gelu_backward_cpu(const OpContext& context, const GeluBackward& args);
void swiglu_forward_cpu(const OpContext& context, const SwigluForward& args);
void swiglu_backward_cpu(const OpContext& context, const SwigluBackward& args);
void add_cpu(const OpContext& context, const Add& args);
void cast_cpu(const OpContext& context, const Cast& args);
void bias_gradient_cpu(const OpContext& context, const BiasGradient& args);
void dropout_cpu(const OpContext& context, const Dropout& args);
void rope_cpu(const OpContext& context, const Rope& args);
void attention_forward_cpu(const OpContext& context, const AttentionForward& args);
void attention_backward_cpu(const OpContext& context, const AttentionBackward& args);
void embedding_forward_cpu(const OpContext& context, const EmbeddingForward& args);
void embedding_backward_cpu(const OpContext& context, const EmbeddingBackward& args);
void spread_rows_cpu(const OpContext& context, const SpreadRows& args);
void collect_rows_cpu(const OpContext& context, const CollectRows& args);
void scale_rows_cpu(const OpContext& context, const ScaleRows& args);
void scale_rows_backward_cpu(const OpContext& context, const ScaleRowsBackward& args);
void bias_rows_cpu(const OpContext& context, const BiasRows& args);
void bias_rows_backward_cpu(const OpContext& context, const BiasRowsBackward& args);
void cross_entropy_stats_cpu(const OpContext& context, const CrossEntropyStats& args);
void cross_entropy_gradient_cpu(const OpContext& context, const CrossEntropyGradient& args);
void adamw_cpu(const OpContext& context, const AdamW& args);
void sgd_cpu(const OpContext& context, const Sgd& args);
void square_sum_cpu(const OpContext& context, const SquareSum& args);
void normal_fill_cpu(const OpContext& context, const NormalFill& args);

}  // namespace trainctl
