#include "ops/cuda/cublas/library.h"

#include <cuda_runtime_api.h>

#include "base/scratch.h"
#include "ops/cuda/cublas/check.h"

namespace trainctl::cuda {
namespace {

cudaDataType_t type_of(DType type) {
  if (type == DType::f32) return CUDA_R_32F;
  return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

/// A row-major [rows, columns] matrix, transposed on the way: columns x rows, column-major; and
/// `count` of them, `stride` bytes apart.
cublasLtMatrixLayout_t layout_of(DType dtype, std::int64_t rows, std::int64_t columns,
                                 std::int64_t count, std::int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, type_of(dtype),
                                          static_cast<std::uint64_t>(columns),
                                          static_cast<std::uint64_t>(rows), columns));
  if (count == 1) return layout;
  const auto set_layout = [layout](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
    CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value));
  };
  set_layout(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(count));
  set_layout(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride / size_of(dtype));
  return layout;
}

/// Whether the library has nothing for this epilogue or batch, of which there are other forms. Of a
/// combination of types and epilogue that it does not have, it also says that a value is invalid.
bool means_none(cublasStatus_t status, const ProductKey& key) {
  const bool plain = key.epilogue == CUBLASLT_EPILOGUE_DEFAULT && key.count == 1;
  return status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_INVALID_VALUE && !plain);
}

}  // namespace

cublasLtHandle_t Library::handle_of(int device) {
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) CUBLAS_CHECK(cublasLtCreate(&handle));
  return handle;
}

Library& library() {
  static Library* kept = new Library;  // never destroyed: the driver may be gone before us
  return *kept;
}

bool has_vector(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

bool has_beside(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_DGELU;
}

Product describe(const ProductKey& key) {
  Product product;
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&product.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto operation_of = [](bool transpose) {
    return static_cast<std::int32_t>(transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
  };
  set_attribute(product.operation, CUBLASLT_MATMUL_DESC_TRANSA, operation_of(key.transpose_b));
  set_attribute(product.operation, CUBLASLT_MATMUL_DESC_TRANSB, operation_of(key.transpose_a));
  set_attribute(product.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, key.epilogue);
  if (key.multiprocessors > 0) {
    set_attribute(product.operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
                  static_cast<std::int32_t>(key.multiprocessors));
  }
  const auto [by_a, by_b, by_c, by_vector] = key.strides;
  if (has_vector(key.epilogue)) {
    set_attribute(product.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                  static_cast<std::int32_t>(type_of(key.result)));
    if (key.count > 1) {
      set_attribute(product.operation, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE,
                    by_vector / size_of(key.result));
    }
  }
  if (has_beside(key.epilogue)) {
    set_attribute(product.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.n);
  }
  const auto layout = [&key](DType dtype, std::int64_t rows, std::int64_t columns, bool transposed,
                             std::int64_t stride) {
    if (transposed) std::swap(rows, columns);
    return layout_of(dtype, rows, columns, key.count, stride);
  };
  product.first = layout(key.operand, key.k, key.n, key.transpose_b, by_b);
  product.second = layout(key.operand, key.m, key.k, key.transpose_a, by_a);
  product.result = layout(key.result, key.m, key.n, false, by_c);
  return product;
}

void destroy(const Product& product) {
  CUBLAS_CHECK(cublasLtMatrixLayoutDestroy(product.first));
  CUBLAS_CHECK(cublasLtMatrixLayoutDestroy(product.second));
  CUBLAS_CHECK(cublasLtMatrixLayoutDestroy(product.result));
  CUBLAS_CHECK(cublasLtMatmulDescDestroy(product.operation));
}

void set_pointers(const Product& product, const Operands& operands) {
  if (operands.vector != nullptr) {
    set_attribute(product.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.vector);
  }
  if (operands.beside != nullptr) {
    set_attribute(product.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.beside);
  }
}

Proposed proposed_for(cublasLtHandle_t handle, const Product& product,
                      const std::array<std::uint32_t, 3>& alignments, int most) {
  cublasLtMatmulPreference_t preference = nullptr;
  CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
  const auto prefer = [preference](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::size_t>(cuda_product_bytes));
  const auto [of_first, of_second, of_result] = alignments;
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of_first);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of_second);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_result);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_result);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  Proposed proposed;
  proposed.status = cublasLtMatmulAlgoGetHeuristic(handle, product.operation, product.first,
                                                   product.second, product.result, product.result,
                                                   preference, most, found.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  for (int i = 0; i < count; ++i) {
    const auto& one = found[static_cast<std::size_t>(i)];
    if (one.state == CUBLAS_STATUS_SUCCESS) proposed.algorithms.push_back(one.algo);
  }
  return proposed;
}

std::vector<cublasLtMatmulAlgo_t> proposals(cublasLtHandle_t handle, const Product& product,
                                            const ProductKey& key, int most) {
  const auto [of_a, of_b, of_result, of_vector, of_beside] = key.alignments;
  Proposed proposed = proposed_for(handle, product, {of_b, of_a, of_result}, most);
  if (!means_none(proposed.status, key)) CUBLAS_CHECK(proposed.status);
  return std::move(proposed.algorithms);
}

bool enqueue(cublasLtHandle_t handle, const Product& product, const ProductKey& key,
             const Operands& operands, std::byte* workspace, cudaStream_t stream) {
  const float alpha = 1;
  const float beta = key.accumulate ? 1.0F : 0.0F;
  const cublasStatus_t status =
      cublasLtMatmul(handle, product.operation, &alpha, operands.b, product.first, operands.a,
                     product.second, &beta, operands.c, product.result, operands.c, product.result,
                     &product.algorithm, workspace, cuda_product_bytes, stream);
  if (means_none(status, key)) return false;
  CUBLAS_CHECK(status);
  return true;
}

}  // namespace trainctl::cuda
