#include "ops/kernels.h"

#include "ops/cpu_tables.h"
#include "ops/cuda_kernels.h"

namespace trainctl {

const Kernels& cpu_kernels() { return kernels_of(cpu_level()); }

const Kernels& kernels_for(DeviceKind device) {
  return device == DeviceKind::cuda ? cuda_module_kernels() : cpu_kernels();
}

std::vector<std::string_view> missing_kernels(const Kernels& kernels) {
  std::vector<std::string_view> missing;
  const auto note = [&missing](const auto& kernel, std::string_view name) {
    if (kernel == nullptr) missing.push_back(name);
  };
  note(kernels.matmul, "matmul");
  note(kernels.matmul_gelu, "matmul_gelu");
  note(kernels.matmul_gelu_backward, "matmul_gelu_backward");
  note(kernels.matmul_column_sums, "matmul_column_sums");
  note(kernels.matmul_batch, "matmul_batch");
  note(kernels.layernorm_forward, "layernorm_forward");
  note(kernels.layernorm_backward, "layernorm_backward");
  note(kernels.rmsnorm_forward, "rmsnorm_forward");
  note(kernels.rmsnorm_backward, "rmsnorm_backward");
  note(kernels.gelu_forward, "gelu_forward");
  note(kernels.gelu_backward, "gelu_backward");
  note(kernels.swiglu_forward, "swiglu_forward");
  note(kernels.swiglu_backward, "swiglu_backward");
  note(kernels.add, "add");
  note(kernels.cast, "cast");
  note(kernels.bias_gradient, "bias_gradient");
  note(kernels.dropout, "dropout");
  note(kernels.rope, "rope");
  note(kernels.attention_forward, "attention_forward");
  note(kernels.attention_backward, "attention_backward");
  note(kernels.attention_merge, "attention_merge");
  note(kernels.embedding_forward, "embedding_forward");
  note(kernels.embedding_backward, "embedding_backward");
  note(kernels.router_forward, "router_forward");
  note(kernels.router_backward, "router_backward");
  note(kernels.router_losses, "router_losses");
  note(kernels.router_statistics, "router_statistics");
  note(kernels.spread_rows, "spread_rows");
  note(kernels.collect_rows, "collect_rows");
  note(kernels.scale_rows, "scale_rows");
  note(kernels.scale_rows_backward, "scale_rows_backward");
  note(kernels.bias_rows, "bias_rows");
  note(kernels.bias_rows_backward, "bias_rows_backward");
  note(kernels.cross_entropy_stats, "cross_entropy_stats");
  note(kernels.cross_entropy_combine, "cross_entropy_combine");
  note(kernels.cross_entropy_gradient, "cross_entropy_gradient");
  note(kernels.adamw, "adamw");
  note(kernels.sgd, "sgd");
  note(kernels.square_sum, "square_sum");
  note(kernels.step_verdict, "step_verdict");
  note(kernels.normal_fill, "normal_fill");
  note(kernels.swap_blocks, "swap_blocks");
  return missing;
}

}  // namespace trainctl
