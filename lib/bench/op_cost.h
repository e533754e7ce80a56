// What a call of each operation moves and computes: the figures by which its time is judged.
#pragma once

#include <initializer_list>

#include "ops/kernels.h"

namespace trainctl {

/// Bytes that are read or written once, whatever the kernel does; floating-point operations of
/// matrix products, of attention those that the causal mask leaves.
struct OpCost {
  double bytes = 0;
  double flops = 0;
};

double bytes_of(std::initializer_list<Tensor> tensors);
double flops_of(const MatmulShape& shape);
/// Of a query and a key that it sees, one product's.
double attention_product_flops(const AttentionShape& shape);

OpCost cost_of(const Matmul& args);
OpCost cost_of(const MatmulGelu& args);
OpCost cost_of(const MatmulGeluBackward& args);
OpCost cost_of(const MatmulColumnSums& args);
OpCost cost_of(const MatmulBatch& args);
OpCost cost_of(const LayerNormForward& args);
OpCost cost_of(const LayerNormBackward& args);
OpCost cost_of(const RmsNormForward& args);
OpCost cost_of(const RmsNormBackward& args);
OpCost cost_of(const GeluForward& args);
OpCost cost_of(const GeluBackward& args);
OpCost cost_of(const SwigluForward& args);
OpCost cost_of(const SwigluBackward& args);
OpCost cost_of(const Add& args);
OpCost cost_of(const Cast& args);
OpCost cost_of(const BiasGradient& args);
OpCost cost_of(const Dropout& args);
OpCost cost_of(const Rope& args);
OpCost cost_of(const AttentionForward& args);
OpCost cost_of(const AttentionBackward& args);
OpCost cost_of(const AttentionMerge& args);
OpCost cost_of(const EmbeddingForward& args);
OpCost cost_of(const EmbeddingBackward& args);
OpCost cost_of(const RouterForward& args);
OpCost cost_of(const RouterBackward& args);
OpCost cost_of(const RouterLosses& args);
OpCost cost_of(const RouterStatistics& args);
OpCost cost_of(const SpreadRows& args);
OpCost cost_of(const CollectRows& args);
OpCost cost_of(const ScaleRows& args);
OpCost cost_of(const ScaleRowsBackward& args);
OpCost cost_of(const BiasRows& args);
OpCost cost_of(const BiasRowsBackward& args);
OpCost cost_of(const CrossEntropyStats& args);
OpCost cost_of(const CrossEntropyCombine& args);
OpCost cost_of(const CrossEntropyGradient& args);
OpCost cost_of(const Calls<AdamW>& args);
OpCost cost_of(const Calls<Sgd>& args);
OpCost cost_of(const Calls<SquareSum>& args);
OpCost cost_of(const StepVerdict& args);
OpCost cost_of(const NormalFill& args);
OpCost cost_of(const SwapBlocks& args);

}  // namespace trainctl
