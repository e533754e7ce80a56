#include "ops/cuda/cublas/rates.h"

#include <map>
#include <optional>

#include "base/scratch.h"
#include "device/cuda_check.h"
#include "ops/cuda/cublas/check.h"
#include "ops/cuda/cublas/library.h"

namespace trainctl::cuda {
namespace {

// The headers have these since CUDA 12.9.
#if CUBLAS_VERSION >= 120900
constexpr bool knows_modes = true;
constexpr std::int32_t of_rows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
constexpr std::int32_t of_strips = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
constexpr std::int32_t of_blocks = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
constexpr auto mode_of_first = CUBLASLT_MATMUL_DESC_A_SCALE_MODE;
constexpr auto mode_of_second = CUBLASLT_MATMUL_DESC_B_SCALE_MODE;
#else
constexpr bool knows_modes = false;
constexpr std::int32_t of_rows = 0, of_strips = 0, of_blocks = 0;
constexpr cublasLtMatmulDescAttributes_t mode_of_first{}, mode_of_second{};
#endif

/// A form in the library's words. It counts columns first (library.h), so b is its first operand.
struct Words {
  cudaDataType_t operand = CUDA_R_8F_E4M3, result = CUDA_R_16BF;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  std::int32_t first_scales = 0, second_scales = 0;  // cublasLtMatmulMatrixScale_t
};

/// Nothing for scales that the headers do not know.
std::optional<Words> words_of(RateForm form) {
  const auto fp8 = [](std::int32_t first, std::int32_t second) -> std::optional<Words> {
    if (!knows_modes) return std::nullopt;
    Words words;
    words.first_scales = first;
    words.second_scales = second;
    return words;
  };
  switch (form) {
    case RateForm::tf32: return Words{CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 0, 0};
    case RateForm::fp8_rows: return fp8(of_rows, of_rows);
    case RateForm::fp8_strips: return fp8(of_strips, of_strips);
    case RateForm::fp8_blocks: return fp8(of_blocks, of_strips);
    default: return Words{};
  }
}

void set_scales(const Product& product, const RateOperands& operands) {
  if (operands.scales_a == nullptr) return;
  set_attribute(product.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                static_cast<const void*>(operands.scales_b));
  set_attribute(product.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                static_cast<const void*>(operands.scales_a));
}

Product described(const RateProduct& one, const Words& words) {
  Product product;
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&product.operation, words.compute, CUDA_R_32F));
  set_attribute(product.operation, CUBLASLT_MATMUL_DESC_TRANSA,
                static_cast<std::int32_t>(CUBLAS_OP_T));
  set_attribute(product.operation, CUBLASLT_MATMUL_DESC_TRANSB,
                static_cast<std::int32_t>(CUBLAS_OP_N));
  if (one.fast) set_attribute(product.operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
  if (words.first_scales != 0) {
    set_attribute(product.operation, mode_of_first, words.first_scales);
    set_attribute(product.operation, mode_of_second, words.second_scales);
  }
  const auto layout = [](cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
    cublasLtMatrixLayout_t made = nullptr;
    CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(columns),
                                            static_cast<std::uint64_t>(rows), columns));
    return made;
  };
  product.first = layout(words.operand, one.n, one.k);
  product.second = layout(words.operand, one.m, one.k);
  product.result = layout(words.result, one.m, one.n);
  return product;
}

/// Of a form that it does not have the library may also say that a value is invalid.
bool means_no_form(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_NOT_SUPPORTED;
}

/// Without an operation the library has none.
Product proposed(cublasLtHandle_t handle, const RateProduct& one, const RateOperands& operands) {
  const auto words = words_of(one.form);
  if (!words) return {};
  Product product = described(one, *words);
  set_scales(product, operands);
  const Proposed found = proposed_for(handle, product, {256, 256, 256}, 1);
  if (!means_no_form(found.status)) CUBLAS_CHECK(found.status);
  if (found.algorithms.empty()) {
    destroy(product);
    return {};
  }
  product.algorithm = found.algorithms.front();
  return product;
}

bool enqueue_rate(const OpContext& context, const RateProduct& one, const RateOperands& operands) {
  static std::map<std::pair<int, RateProduct>, Product>
      kept;  // by device; under the library's lock
  const std::lock_guard lock(library().mutex);
  const int device = current_cuda_device();
  const cublasLtHandle_t handle = library().handle_of(device);
  auto found = kept.find({device, one});
  if (found == kept.end()) {
    found = kept.emplace(std::pair(device, one), proposed(handle, one, operands)).first;
  }
  Product& product = found->second;
  if (product.operation == nullptr) return false;
  set_scales(product, operands);
  const float alpha = 1;
  const float beta = 0;
  const cublasStatus_t status = cublasLtMatmul(
      handle, product.operation, &alpha, operands.b, product.first, operands.a, product.second,
      &beta, operands.y, product.result, operands.y, product.result, &product.algorithm,
      context.scratch + scratch_bytes_per_thread + cuda_bias_bytes, cuda_product_bytes,
      static_cast<cudaStream_t>(context.stream->native()));
  if (!means_no_form(status)) {
    CUBLAS_CHECK(status);
    return true;
  }
  destroy(product);
  product = {};
  return false;
}

}  // namespace

const CudaProductRates product_rates_part_of_module{.enqueue = enqueue_rate};

}  // namespace trainctl::cuda
