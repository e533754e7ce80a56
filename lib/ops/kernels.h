// A backend as a struct of functions: one table for the CPU, one for CUDA. A null entry is not
// built there; the engine refuses a plan that needs it, by name. The front doors (rmsnorm.cpp ...)
// check and then call these.
#pragma once

#include <string_view>
#include <vector>

#include "ops/adamw.h"
#include "ops/add.h"
#include "ops/attention.h"
#include "ops/attention_merge.h"
#include "ops/bias_gradient.h"
#include "ops/cast.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/gelu.h"
#include "ops/layernorm.h"
#include "ops/matmul.h"
#include "ops/matmul_batch.h"
#include "ops/matmul_fused.h"
#include "ops/normal_fill.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/router.h"
#include "ops/rows.h"
#include "ops/sgd.h"
#include "ops/square_sum.h"
#include "ops/step_verdict.h"
#include "ops/swap_blocks.h"
#include "ops/swiglu.h"

namespace trainctl {

template <class Args>
using Kernel = void (*)(const OpContext&, const Args&);

struct Kernels {
  std::string_view name;
  Kernel<Matmul> matmul;
  Kernel<MatmulGelu> matmul_gelu;
  Kernel<MatmulGeluBackward> matmul_gelu_backward;
  Kernel<MatmulColumnSums> matmul_column_sums;
  Kernel<MatmulBatch> matmul_batch;
  Kernel<LayerNormForward> layernorm_forward;
  Kernel<LayerNormBackward> layernorm_backward;
  Kernel<RmsNormForward> rmsnorm_forward;
  Kernel<RmsNormBackward> rmsnorm_backward;
  Kernel<GeluForward> gelu_forward;
  Kernel<GeluBackward> gelu_backward;
  Kernel<SwigluForward> swiglu_forward;
  Kernel<SwigluBackward> swiglu_backward;
  Kernel<Add> add;
  Kernel<Cast> cast;
  Kernel<BiasGradient> bias_gradient;
  Kernel<Dropout> dropout;
  Kernel<Rope> rope;
  Kernel<AttentionForward> attention_forward;
  Kernel<AttentionBackward> attention_backward;
  Kernel<AttentionMerge> attention_merge;
  Kernel<EmbeddingForward> embedding_forward;
  Kernel<EmbeddingBackward> embedding_backward;
  Kernel<RouterForward> router_forward;
  Kernel<RouterBackward> router_backward;
  Kernel<RouterLosses> router_losses;
  Kernel<RouterStatistics> router_statistics;
  Kernel<SpreadRows> spread_rows;
  Kernel<CollectRows> collect_rows;
  Kernel<ScaleRows> scale_rows;
  Kernel<ScaleRowsBackward> scale_rows_backward;
  Kernel<BiasRows> bias_rows;
  Kernel<BiasRowsBackward> bias_rows_backward;
  Kernel<CrossEntropyStats> cross_entropy_stats;
  Kernel<CrossEntropyCombine> cross_entropy_combine;
  Kernel<CrossEntropyGradient> cross_entropy_gradient;
  Kernel<Calls<AdamW>> adamw;
  Kernel<Calls<Sgd>> sgd;
  Kernel<Calls<SquareSum>> square_sum;
  Kernel<StepVerdict> step_verdict;
  Kernel<NormalFill> normal_fill;
  Kernel<SwapBlocks> swap_blocks;
};

/// The fast CPU kernels of the level in use (cpu_level.h), and the plain ones that are their
/// oracle. Both are complete. cpu_kernels() throws as cpu_level() does.
const Kernels& cpu_kernels();
extern const Kernels plain_kernels;

/// The table for a device. Throws Error{unavailable} when it is not built or its module cannot be
/// opened.
const Kernels& kernels_for(DeviceKind device);

/// Names of the entries that are null, in table order.
std::vector<std::string_view> missing_kernels(const Kernels& kernels);

}  // namespace trainctl
