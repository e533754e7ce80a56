// cuBLASLt's descriptions of products, and what is kept of them between calls. The library counts
// columns first, so a row-major c = a b is asked for as c^T = b^T a^T: operands and extents change
// places, and a row of c's bias becomes its column.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "ops/cuda/cublas/check.h"
#include "ops/cuda_products.h"

namespace trainctl::cuda {

/// A product as cuBLASLt sees it. Without an operation the library has none for its epilogue.
struct Product {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

/// Where the operands of a call lie; of a batch those of the first product.
struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* vector = nullptr;
  const void* beside = nullptr;
};

/// What is kept between calls. Threads that are ranks share it; the lock is held while a product is
/// enqueued, since pointers of the epilogue are part of the shared description.
struct Library {
  std::mutex mutex;
  std::map<int, cublasLtHandle_t> handles;  // by device
  std::map<std::pair<int, ProductKey>, Product> products;
  std::map<std::pair<int, ProductKey>, Product> by_shape;  // never by another algorithm
  std::map<ProductKey, cublasLtMatmulAlgo_t> chosen;       // CudaProducts::use

  cublasLtHandle_t handle_of(int device);
};

Library& library();

template <class T>
void set_attribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                   T value) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}

/// What an epilogue (cublasLtEpilogue_t) has beside the operands.
bool has_vector(std::uint32_t epilogue);
bool has_beside(std::uint32_t epilogue);
/// Without an algorithm.
Product describe(const ProductKey& key);
void destroy(const Product& product);
void set_pointers(const Product& product, const Operands& operands);
/// What the library proposes for a product, and why there may be nothing.
struct Proposed {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  std::vector<cublasLtMatmulAlgo_t> algorithms;
};
/// At most `most`, which all fit the workspace. `alignments`: of first, second and result.
Proposed proposed_for(cublasLtHandle_t handle, const Product& product,
                      const std::array<std::uint32_t, 3>& alignments, int most);
/// The library's first proposals for the product, at most `most`, which all fit the workspace; of
/// epilogues set_pointers came before. Empty: it has none.
std::vector<cublasLtMatmulAlgo_t> proposals(cublasLtHandle_t handle, const Product& product,
                                            const ProductKey& key, int most);
/// `workspace`: cuda_product_bytes. False: the library refuses the epilogue or the batch after all,
/// and enqueued nothing.
bool enqueue(cublasLtHandle_t handle, const Product& product, const ProductKey& key,
             const Operands& operands, std::byte* workspace, cudaStream_t stream);

}  // namespace trainctl::cuda
