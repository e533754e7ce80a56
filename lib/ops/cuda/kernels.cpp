// The module's part for ops/: its table of kernels. Entries not named are null: not built yet.
#include "ops/cuda/kernels.h"

#include "device/cuda_device.h"
#include "ops/cuda/cublas/rates.h"
#include "ops/cuda/cublas/timed.h"

namespace trainctl {
namespace {

Kernels built_kernels() {
  Kernels table{};
  table.name = "cuda";
  table.matmul = cuda::matmul;
  table.matmul_gelu = cuda::matmul_gelu;
  table.matmul_gelu_backward = cuda::matmul_gelu_backward;
  table.matmul_column_sums = cuda::matmul_column_sums;
  table.matmul_batch = cuda::matmul_batch;
  table.layernorm_forward = cuda::layernorm_forward;
  table.layernorm_backward = cuda::layernorm_backward;
  table.rmsnorm_forward = cuda::rmsnorm_forward;
  table.rmsnorm_backward = cuda::rmsnorm_backward;
  table.gelu_forward = cuda::gelu_forward;
  table.gelu_backward = cuda::gelu_backward;
  table.swiglu_forward = cuda::swiglu_forward;
  table.swiglu_backward = cuda::swiglu_backward;
  table.add = cuda::add;
  table.cast = cuda::cast;
  table.bias_gradient = cuda::bias_gradient;
  table.dropout = cuda::dropout;
  table.rope = cuda::rope;
  table.attention_forward = cuda::chosen_attention_forward;
  table.attention_backward = cuda::chosen_attention_backward;
  table.attention_merge = cuda::attention_merge;
  table.embedding_forward = cuda::embedding_forward;
  table.embedding_backward = cuda::embedding_backward;
  table.router_forward = cuda::router_forward;
  table.router_backward = cuda::router_backward;
  table.router_losses = cuda::router_losses;
  table.router_statistics = cuda::router_statistics;
  table.spread_rows = cuda::spread_rows;
  table.collect_rows = cuda::collect_rows;
  table.scale_rows = cuda::scale_rows;
  table.scale_rows_backward = cuda::scale_rows_backward;
  table.bias_rows = cuda::bias_rows;
  table.bias_rows_backward = cuda::bias_rows_backward;
  table.cross_entropy_stats = cuda::cross_entropy_stats;
  table.cross_entropy_combine = cuda::cross_entropy_combine;
  table.cross_entropy_gradient = cuda::cross_entropy_gradient;
  table.adamw = cuda::adamw;
  table.sgd = cuda::sgd;
  table.square_sum = cuda::square_sum;
  table.step_verdict = cuda::step_verdict;
  table.normal_fill = cuda::normal_fill;
  table.swap_blocks = cuda::swap_blocks;
  return table;
}

const Kernels cuda_kernels = built_kernels();

}  // namespace
}  // namespace trainctl

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_kernels() {
  return {&trainctl::cuda_kernels, sizeof(trainctl::Kernels)};
}

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_attention() {
  return {&trainctl::cuda::attention_part_of_module, sizeof(trainctl::CudaAttention)};
}

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_products() {
  return {&trainctl::cuda::products_part_of_module, sizeof(trainctl::CudaProducts)};
}

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_product_rates() {
  return {&trainctl::cuda::product_rates_part_of_module, sizeof(trainctl::CudaProductRates)};
}
