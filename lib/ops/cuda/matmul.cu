// Matrix products through cuBLASLt. It counts columns first, so a row-major c = a b is asked for as
// c^T = b^T a^T: operands and extents change places, and a row of c's bias becomes its column.
// fp32 products are computed in fp32 (no TF32). The algorithm of a shape is the library's first
// proposal, without timing, so that all ranks choose alike; it is kept for the next call. What
// comes right before or after a product is its epilogue where the library has one for the types and
// extents, else other kernels: that too depends on nothing else.
#include <cublasLt.h>

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
#include "ops/cuda/cublas_check.h"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"

namespace trainctl::cuda {
namespace {

/// All that an algorithm depends on, as plain words: extents, flags and types, alignments, device.
struct ProductKey {
  std::array<std::int64_t, 6> words;
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

/// One call's operands, where they really lie.
struct Call {
  const Matmul& args;
  std::int64_t m, n, k;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* vector = nullptr;  // of the result's type: a bias, or where sums of b's columns go
  const void* beside = nullptr;  // a matrix as the result: what GELU is applied to

  Call(const Matmul& product, cublasLtEpilogue_t with)
      : args(product),
        m(product.c.rows()),
        n(product.c.columns()),
        k(product.transpose_a ? product.a.rows() : product.a.columns()),
        epilogue(with) {}
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

/// The largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256U;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

ProductKey key_of(const Call& call, int device) {
  const Matmul& args = call.args;
  std::int64_t flags = args.transpose_a;
  for (const bool flag : {args.transpose_b, args.accumulate}) flags = flags * 2 + flag;
  flags = flags * 4096 + static_cast<std::int64_t>(call.epilogue);
  for (const DType type : {args.a.dtype, args.c.dtype})
    flags = flags * 256 + static_cast<int>(type);
  std::int64_t alignments = 0;
  for (const void* data :
       {static_cast<const void*>(args.a.data), static_cast<const void*>(args.b.data),
        static_cast<const void*>(args.c.data), call.vector, call.beside}) {
    alignments = alignments * 512 + alignment_of(data);
  }
  return ProductKey{{call.m, call.n, call.k, flags, alignments, device}};
}

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}

/// A row-major [rows, columns] tensor, transposed on the way: columns x rows, column-major.
cublasLtMatrixLayout_t layout_of(const Tensor& tensor) {
  cublasLtMatrixLayout_t layout = nullptr;
  const auto rows = static_cast<std::uint64_t>(tensor.rows());
  const auto columns = static_cast<std::uint64_t>(tensor.columns());
  CUBLAS_CHECK(
      cublasLtMatrixLayoutCreate(&layout, type_of(tensor.dtype), columns, rows, tensor.columns()));
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
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(call.args.b.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(call.args.a.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(call.args.c.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(call.args.c.data));
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

[[noreturn]] void fail_unknown(const Call& call) {
  throw Error(ExitCode::unavailable, "[matmul] cuBLASLt has no algorithm for m " +
                                         std::to_string(call.m) + ", n " + std::to_string(call.n) +
                                         ", k " + std::to_string(call.k) + ", " +
                                         std::string(name_of(call.args.a.dtype)) + " to " +
                                         std::string(name_of(call.args.c.dtype)));
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
  }
  if (call.beside != nullptr) set(product.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.n);
  set_pointers(product, call);
  product.first = layout_of(args.b);
  product.second = layout_of(args.a);
  product.result = layout_of(args.c);
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

/// Nothing is kept of a product whose extents vary: there would be no end to them. False: the
/// library has none with the epilogue, and nothing was enqueued.
bool enqueue_product(const Call& call, cudaStream_t stream, std::byte* workspace) {
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

/// The context's memory for products: first that of one vector, then the library's.
std::byte* workspace_of(const OpContext& context) {
  require(context.scratch_bytes >= scratch_bytes(DeviceKind::cuda, 1), ExitCode::internal,
          "[matmul] the context has no memory for products");
  return context.scratch + scratch_bytes_per_thread;
}

/// cuBLASLt adds a bias of the result's type only. For a 16-bit result the bias is therefore
/// rounded once more than on the CPU, by no more than the result is when |bias| <= |c|.
const void* bias_of(const OpContext& context, const Matmul& args) {
  if (args.bias.empty() || args.c.dtype == DType::f32) return args.bias.data;
  const std::int64_t count = args.bias.numel();
  require(count * size_of(args.c.dtype) <= cuda_bias_bytes, ExitCode::unavailable,
          "[matmul] a bias of " + std::to_string(count) +
              " elements for a result of 16 bits: at most " +
              std::to_string(cuda_bias_bytes / size_of(args.c.dtype)));
  std::byte* room = workspace_of(context);
  cuda::cast(context,
             {.x = args.bias, .y = {room, args.bias.shape, args.c.dtype, DeviceKind::cuda}});
  return room;
}

bool multiplies_nothing(const Matmul& args) {
  return args.c.numel() == 0 || (args.transpose_a ? args.a.rows() : args.a.columns()) == 0;
}

/// Whether an epilogue may have the matrix beside the result: the library asks for rows of whole
/// packs of eight elements, and this for their alignment.
bool fits_beside(const Tensor& matrix) {
  return matrix.columns() % 8 == 0 && all_aligned({matrix.data});
}

bool enqueue_fused(const OpContext& context, const Call& call) {
  const std::lock_guard lock(library().mutex);
  return enqueue_product(call, stream_of(context), workspace_of(context));
}

}  // namespace

void matmul(const OpContext& context, const Matmul& args) {
  const cudaStream_t stream = stream_of(context);
  if (args.c.numel() == 0) return;
  if (multiplies_nothing(args)) {
    require(args.bias.empty(), ExitCode::internal, "[matmul] k is 0 and there is a bias");
    const auto bytes = static_cast<std::size_t>(args.c.bytes());
    if (!args.accumulate) CUDA_CHECK(cudaMemsetAsync(args.c.data, 0, bytes, stream));
    return;
  }
  const bool biased = !args.bias.empty();
  Call call(args, biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
  const std::lock_guard lock(library().mutex);
  call.vector = bias_of(context, args);
  if (!enqueue_product(call, stream, workspace_of(context))) fail_unknown(call);
}

void matmul_gelu(const OpContext& context, const MatmulGelu& args) {
  const Matmul& up = args.up;
  if (!multiplies_nothing(up) && fits_beside(up.c)) {
    Matmul product = up;
    product.c = args.act;
    Call call(product,
              up.bias.empty() ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    call.vector = bias_of(context, up);
    call.beside = up.c.data;
    if (enqueue_fused(context, call)) return;
  }
  cuda::matmul(context, up);
  cuda::gelu_forward(context, {.x = up.c, .y = args.act});
}

void matmul_gelu_backward(const OpContext& context, const MatmulGeluBackward& args) {
  if (!multiplies_nothing(args.dx) && fits_beside(args.x)) {
    Call call(args.dx, CUBLASLT_EPILOGUE_DGELU);
    call.beside = args.x.data;
    if (enqueue_fused(context, call)) return;
  }
  cuda::matmul(context, args.dx);
  cuda::gelu_backward(context, {.x = args.x, .dy = args.dx.c, .dx = args.dx.c});
}

void matmul_column_sums(const OpContext& context, const MatmulColumnSums& args) {
  const Matmul& product = args.product;
  // The library overwrites, and what it calls b is our a.
  if (!multiplies_nothing(product) && args.sums.bytes() <= cuda_bias_bytes) {
    Tensor made = args.sums;
    made.data = workspace_of(context);
    Call call(product, CUBLASLT_EPILOGUE_BGRADB);
    call.vector = made.data;
    if (enqueue_fused(context, call)) {
      return cuda::add(context, {.a = args.sums, .b = made, .y = args.sums});
    }
  }
  cuda::bias_gradient(context, {.dy = product.a, .db = args.sums});
  cuda::matmul(context, product);
}

}  // namespace trainctl::cuda
