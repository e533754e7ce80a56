// The entries of the table of kernels, one after another, with their names.
#pragma once

#include <string_view>
#include <type_traits>

#include "ops/kernels.h"

namespace trainctl {

/// A member of Kernels as a value whose type says which.
template <auto member>
using KernelEntry = std::integral_constant<decltype(member), member>;

/// visit(KernelEntry, name) for each, in table order.
template <class Visit>
void each_kernel(const Visit& visit) {
  visit(KernelEntry<&Kernels::matmul>{}, "matmul");
  visit(KernelEntry<&Kernels::matmul_gelu>{}, "matmul_gelu");
  visit(KernelEntry<&Kernels::matmul_gelu_backward>{}, "matmul_gelu_backward");
  visit(KernelEntry<&Kernels::matmul_column_sums>{}, "matmul_column_sums");
  visit(KernelEntry<&Kernels::matmul_batch>{}, "matmul_batch");
  visit(KernelEntry<&Kernels::layernorm_forward>{}, "layernorm_forward");
  visit(KernelEntry<&Kernels::layernorm_backward>{}, "layernorm_backward");
  visit(KernelEntry<&Kernels::rmsnorm_forward>{}, "rmsnorm_forward");
  visit(KernelEntry<&Kernels::rmsnorm_backward>{}, "rmsnorm_backward");
  visit(KernelEntry<&Kernels::gelu_forward>{}, "gelu_forward");
  visit(KernelEntry<&Kernels::gelu_backward>{}, "gelu_backward");
  visit(KernelEntry<&Kernels::swiglu_forward>{}, "swiglu_forward");
  visit(KernelEntry<&Kernels::swiglu_backward>{}, "swiglu_backward");
  visit(KernelEntry<&Kernels::add>{}, "add");
  visit(KernelEntry<&Kernels::cast>{}, "cast");
  visit(KernelEntry<&Kernels::bias_gradient>{}, "bias_gradient");
  visit(KernelEntry<&Kernels::dropout>{}, "dropout");
  visit(KernelEntry<&Kernels::rope>{}, "rope");
  visit(KernelEntry<&Kernels::attention_forward>{}, "attention_forward");
  visit(KernelEntry<&Kernels::attention_backward>{}, "attention_backward");
  visit(KernelEntry<&Kernels::attention_merge>{}, "attention_merge");
  visit(KernelEntry<&Kernels::embedding_forward>{}, "embedding_forward");
  visit(KernelEntry<&Kernels::embedding_backward>{}, "embedding_backward");
  visit(KernelEntry<&Kernels::router_forward>{}, "router_forward");
  visit(KernelEntry<&Kernels::router_backward>{}, "router_backward");
  visit(KernelEntry<&Kernels::router_losses>{}, "router_losses");
  visit(KernelEntry<&Kernels::router_statistics>{}, "router_statistics");
  visit(KernelEntry<&Kernels::spread_rows>{}, "spread_rows");
  visit(KernelEntry<&Kernels::collect_rows>{}, "collect_rows");
  visit(KernelEntry<&Kernels::scale_rows>{}, "scale_rows");
  visit(KernelEntry<&Kernels::scale_rows_backward>{}, "scale_rows_backward");
  visit(KernelEntry<&Kernels::bias_rows>{}, "bias_rows");
  visit(KernelEntry<&Kernels::bias_rows_backward>{}, "bias_rows_backward");
  visit(KernelEntry<&Kernels::cross_entropy_stats>{}, "cross_entropy_stats");
  visit(KernelEntry<&Kernels::cross_entropy_combine>{}, "cross_entropy_combine");
  visit(KernelEntry<&Kernels::cross_entropy_gradient>{}, "cross_entropy_gradient");
  visit(KernelEntry<&Kernels::adamw>{}, "adamw");
  visit(KernelEntry<&Kernels::sgd>{}, "sgd");
  visit(KernelEntry<&Kernels::square_sum>{}, "square_sum");
  visit(KernelEntry<&Kernels::step_verdict>{}, "step_verdict");
  visit(KernelEntry<&Kernels::normal_fill>{}, "normal_fill");
  visit(KernelEntry<&Kernels::swap_blocks>{}, "swap_blocks");
}

/// kernels_for() gives this table instead of the device's from now on, in the whole process; null:
/// the device's again. For measuring: its entries look at a call and make it by own_kernels().
void replace_kernels(const Kernels* kernels);
/// The table of the device, whatever replaces it.
const Kernels& own_kernels(DeviceKind device);

}  // namespace trainctl
