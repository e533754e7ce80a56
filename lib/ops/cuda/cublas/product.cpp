#include "ops/cuda/cublas/product.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/hash.h"
#include "base/scratch.h"
#include "device/cuda_check.h"
#include "ops/cuda/cublas/check.h"

namespace trainctl::cuda {
namespace {

/// All that an algorithm depends on, as plain words: extents, flags and types, alignments, device.
struct ProductKey {
  std::array<std::int64_t, 11> words;
  friend bool operator==(const ProductKey&, const ProductKey&) = default;
};

struct ProductHash {
  std::size_t operator()(const ProductKey& key) const {
    return fnv1a({reinterpret_cast<const char*>(key.words.data()), sizeof key.words});
  }
};

/// A product as cuBLASLt sees it. Without an operation the library has none for its epilogue.
struct Product {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

/// What is kept between calls. Threads that are ranks share it; the lock is held while a product is
/// enqueued, since pointers of the epilogue are part of the shared description.
struct Library {
  std::mutex mutex;
  std::unordered_map<int, cublasLtHandle_t> handles;  // by device
  std::unordered_map<ProductKey, Product, ProductHash> products;
};

Library& library() {
  static Library* kept = new Library;  // never destroyed: the driver may be gone before us
  return *kept;
}

cublasLtHandle_t handle_of(int device) {
  cublasLtHandle_t& handle = library().handles[device];
  if (handle == nullptr) CUBLAS_CHECK(cublasLtCreate(&handle));
  return handle;
}

cudaDataType_t type_of(DType type) {
  if (type == DType::f32) return CUDA_R_32F;
  return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

/// The largest power of two up to 256 that divides the address and the stride.
std::uint32_t alignment_of(const void* data, std::int64_t stride) {
  const auto address =
      reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uintptr_t>(stride) | 256U;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

ProductKey key_of(const Call& call, int device) {
  const Matmul& args = call.args;
  std::int64_t flags = args.transpose_a;
  for (const bool flag : {args.transpose_b, args.accumulate}) flags = flags * 2 + flag;
  flags = flags * 4096 + static_cast<std::int64_t>(call.epilogue);
  for (const DType type : {args.a.dtype, args.c.dtype})
    flags = flags * 256 + static_cast<int>(type);
  const Strides& by = call.strides;
  std::int64_t alignments = 0;
  for (const std::uint32_t alignment :
       {alignment_of(args.a.data, by.a), alignment_of(args.b.data, by.b),
        alignment_of(args.c.data, by.c), alignment_of(call.vector, 0),
        alignment_of(call.beside, 0)}) {
    alignments = alignments * 512 + alignment;
  }
  return ProductKey{
      {call.m, call.n, call.k, flags, alignments, device, by.count, by.a, by.b, by.c, by.vector}};
}

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}

/// A row-major [rows, columns] tensor, transposed on the way: columns x rows, column-major; and
/// `count` of them, `stride` bytes apart.
cublasLtMatrixLayout_t layout_of(const Tensor& tensor, std::int64_t count, std::int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  const auto rows = static_cast<std::uint64_t>(tensor.rows());
  const auto columns = static_cast<std::uint64_t>(tensor.columns());
  CUBLAS_CHECK(
      cublasLtMatrixLayoutCreate(&layout, type_of(tensor.dtype), columns, rows, tensor.columns()));
  if (count == 1) return layout;
  const auto set_layout = [layout](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
    CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value));
  };
  set_layout(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(count));
  set_layout(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride / size_of(tensor.dtype));
  return layout;
}

/// The library's first proposal for the product; false: it has none.
bool choose_algorithm(cublasLtHandle_t handle, Product& product, const Call& call) {
  cublasLtMatmulPreference_t preference = nullptr;
  CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
  const auto prefer = [preference](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::size_t>(cuda_product_bytes));
  const Strides& by = call.strides;
  const std::uint32_t of_result = alignment_of(call.args.c.data, by.c);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(call.args.b.data, by.b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(call.args.a.data, by.a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_result);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_result);
  cublasLtMatmulHeuristicResult_t proposal{};
  int proposals = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, product.operation, product.first, product.second, product.result, product.result,
      preference, 1, &proposal, &proposals);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) CUBLAS_CHECK(status);
  product.algorithm = proposal.algo;
  return proposals > 0;
}

void destroy(const Product& product) {
  CUBLAS_CHECK(cublasLtMatrixLayoutDestroy(product.first));
  CUBLAS_CHECK(cublasLtMatrixLayoutDestroy(product.second));
  CUBLAS_CHECK(cublasLtMatrixLayoutDestroy(product.result));
  CUBLAS_CHECK(cublasLtMatmulDescDestroy(product.operation));
}

void set_pointers(const Product& product, const Call& call) {
  if (call.vector != nullptr) {
    set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.vector);
  }
  if (call.beside != nullptr) {
    set(product.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.beside);
  }
}

Product new_product(cublasLtHandle_t handle, const Call& call) {
  const Matmul& args = call.args;
  Product product;
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&product.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto operation_of = [](bool transpose) {
    return static_cast<std::int32_t>(transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
  };
  set(product.operation, CUBLASLT_MATMUL_DESC_TRANSA, operation_of(args.transpose_b));
  set(product.operation, CUBLASLT_MATMUL_DESC_TRANSB, operation_of(args.transpose_a));
  set(product.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(call.epilogue));
  if (call.vector != nullptr) {
    set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
        static_cast<std::int32_t>(type_of(args.c.dtype)));
    if (call.strides.count > 1) {
      set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE,
          call.strides.vector / size_of(args.c.dtype));
    }
  }
  if (call.beside != nullptr) set(product.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.n);
  set_pointers(product, call);
  const Strides& by = call.strides;
  product.first = layout_of(args.b, by.count, by.b);
  product.second = layout_of(args.a, by.count, by.a);
  product.result = layout_of(args.c, by.count, by.c);
  if (choose_algorithm(handle, product, call)) return product;
  destroy(product);
  return {};
}

void enqueue(cublasLtHandle_t handle, const Product& product, const Call& call,
             std::byte* workspace, cudaStream_t stream) {
  const float alpha = 1;
  const float beta = call.args.accumulate ? 1.0F : 0.0F;
  CUBLAS_CHECK(cublasLtMatmul(handle, product.operation, &alpha, call.args.b.data, product.first,
                              call.args.a.data, product.second, &beta, call.args.c.data,
                              product.result, call.args.c.data, product.result, &product.algorithm,
                              workspace + cuda_bias_bytes, cuda_product_bytes, stream));
}

}  // namespace

void fail_unknown(const Call& call) {
  throw Error(ExitCode::unavailable, "[matmul] cuBLASLt has no algorithm for m " +
                                         std::to_string(call.m) + ", n " + std::to_string(call.n) +
                                         ", k " + std::to_string(call.k) + ", " +
                                         std::string(name_of(call.args.a.dtype)) + " to " +
                                         std::string(name_of(call.args.c.dtype)));
}

/// Nothing is kept of a product whose extents vary: there would be no end to them.
bool enqueue_product(const Call& call, cudaStream_t stream, std::byte* workspace) {
  const std::lock_guard lock(library().mutex);
  int device = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  const cublasLtHandle_t handle = handle_of(device);
  if (call.args.varies) {
    const Product product = new_product(handle, call);
    if (product.operation == nullptr) return false;
    enqueue(handle, product, call, workspace, stream);
    destroy(product);
    return true;
  }
  const ProductKey key = key_of(call, device);
  auto found = library().products.find(key);
  if (found == library().products.end()) {
    found = library().products.emplace(key, new_product(handle, call)).first;
  }
  const Product& product = found->second;
  if (product.operation == nullptr) return false;
  set_pointers(product, call);
  enqueue(handle, product, call, workspace, stream);
  return true;
}

}  // namespace trainctl::cuda
