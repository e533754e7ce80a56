// Products by cuBLASLt: descriptions, timing of algorithms, calls, and number formats that no run
// uses.
#include "ops/cuda/cublas/product.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/integers.h"
#include "base/scratch.h"
#include "device/cuda_check.h"
#include "ops/cuda/cublas/check.h"

namespace trainctl::cuda {
namespace {

// cuBLASLt's descriptions of products, and their cache. The library is column-major, so a row-major
// c = a b is computed as c^T = b^T a^T: operands and extents are exchanged, and a bias of c's row
// is a bias of c^T's column.

/// A product as described to cuBLASLt. `operation` is null if the library lacks its epilogue.
struct Product {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

/// The addresses of a call's operands; for a batch, of its first product.
struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* vector = nullptr;
  const void* beside = nullptr;
};

/// The cache between calls, shared by the threads of ranks. The lock is held while a product is
/// enqueued, because the epilogue's pointers are part of the shared description.
struct Library {
  std::mutex mutex;
  std::map<int, cublasLtHandle_t> handles;  // one per device
  std::map<std::pair<int, ProductKey>, Product> products;
  std::map<std::pair<int, ProductKey>, Product> by_shape;  // always the library's first proposal
  std::map<ProductKey, cublasLtMatmulAlgo_t> chosen;       // CudaProducts::use

  cublasLtHandle_t handle_of(int device) {
    cublasLtHandle_t& handle = handles[device];
    if (handle == nullptr) CUBLAS_CHECK(cublasLtCreate(&handle));
    return handle;
  }
};

template <class T>
void set_attribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                   T value) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}

/// The library's proposals for a product, and its status if there are none.
struct Proposed {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  std::vector<cublasLtMatmulAlgo_t> algorithms;
};

cudaDataType_t type_of(DType type) {
  if (type == DType::f32) return CUDA_R_32F;
  return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

/// The layout of a row-major [rows, columns] matrix, which to the library is column-major [columns,
/// rows]; with `count` matrices `stride` elements apart.
cublasLtMatrixLayout_t layout_of(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                                 std::int64_t count = 1, std::int64_t stride = 0) {
  cublasLtMatrixLayout_t layout = nullptr;
  CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(columns),
                                          static_cast<std::uint64_t>(rows), columns));
  if (count == 1) return layout;
  const auto set_layout = [layout](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
    CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value));
  };
  set_layout(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(count));
  set_layout(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  return layout;
}

/// Whether the status says that the library lacks this epilogue or batch; callers then use other
/// forms. For unsupported combinations of types and epilogue it may also report an invalid value.
bool means_none(cublasStatus_t status, const ProductKey& key) {
  const bool plain = key.epilogue == CUBLASLT_EPILOGUE_DEFAULT && key.count == 1;
  return status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_INVALID_VALUE && !plain);
}

Library& library() {
  static Library* kept = new Library;  // never destroyed, as the driver may be gone by then
  return *kept;
}

/// Whether an epilogue (cublasLtEpilogue_t) has a vector operand; has_beside: a matrix operand.
bool has_vector(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

bool has_beside(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_DGELU;
}

/// Makes the description of a product, without an algorithm.
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
    return layout_of(type_of(dtype), rows, columns, key.count, stride / size_of(dtype));
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

/// At most `most` proposals that fit the workspace. `alignments` are for first, second and result.
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

/// The library's first proposals for the product, at most `most`, all of which fit the workspace.
/// For epilogues, set_pointers must come first. Empty if there are none.
std::vector<cublasLtMatmulAlgo_t> proposals(cublasLtHandle_t handle, const Product& product,
                                            const ProductKey& key, int most) {
  const auto [of_a, of_b, of_result, of_vector, of_beside] = key.alignments;
  Proposed proposed = proposed_for(handle, product, {of_b, of_a, of_result}, most);
  if (!means_none(proposed.status, key)) CUBLAS_CHECK(proposed.status);
  return std::move(proposed.algorithms);
}

/// Enqueues a product. `workspace` has cuda_product_bytes. Returns false, with nothing enqueued, if
/// the library refuses the epilogue or the batch after all.
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

constexpr int max_proposals = 8;
constexpr int timed_rounds = 5;  // after one round that loads the kernels
/// Another algorithm must take less than this share of the first proposal's time, a gain too large
/// to be noise of clocks and other work on the device.
constexpr double clear_gain = 0.98;

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof ProductAlgorithm::words);

/// The products noted by one thread, which runs one rank.
struct Notes {
  bool on = false;
  std::vector<NotedProduct> list;
};

Notes& notes() {
  thread_local Notes of_thread;
  return of_thread;
}

void begin_notes() { notes() = {.on = true, .list = {}}; }

std::vector<NotedProduct> end_notes() {
  notes().on = false;
  return std::move(notes().list);
}

/// The placement of operands in one block, and the block's size.
struct Places {
  std::array<std::int64_t, 5> offsets{};  // a, b, c, the vector, the matrix
  std::int64_t bytes = 0;
};

Places places_of(const ProductKey& key) {
  const std::int64_t of_operand = size_of(key.operand);
  const std::int64_t of_result = size_of(key.result);
  const std::int64_t others = key.count - 1;
  const auto [by_a, by_b, by_c, by_vector] = key.strides;
  const std::int64_t vector = key.epilogue == CUBLASLT_EPILOGUE_BGRADB ? key.m : key.n;
  const std::array sizes{others * by_a + key.m * key.k * of_operand,
                         others * by_b + key.k * key.n * of_operand,
                         others * by_c + key.m * key.n * of_result,
                         others * by_vector + vector * of_result, key.m * key.n * of_result};
  const std::array needed{true, true, true, has_vector(key.epilogue), has_beside(key.epilogue)};
  Places places;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!needed[i]) continue;
    // Aligned exactly as in the call, so that timings and refusals are those of the call.
    places.offsets[i] = places.bytes + key.alignments[i] % 256;
    places.bytes = round_up(places.offsets[i] + sizes[i], 256);
  }
  return places;
}

std::int64_t operand_bytes(const ProductKey& key) { return places_of(key).bytes; }

Operands operands_in(std::byte* block, const ProductKey& key) {
  const auto [a, b, c, vector, beside] = places_of(key).offsets;
  return {.a = block + a,
          .b = block + b,
          .c = block + c,
          .vector = has_vector(key.epilogue) ? block + vector : nullptr,
          .beside = has_beside(key.epilogue) ? block + beside : nullptr};
}

class TimedEvent {
 public:
  TimedEvent() { CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDefault)); }
  ~TimedEvent() {
    if (cudaEventDestroy(event_) != cudaSuccess) cudaGetLastError();
  }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Times calls of one product by different algorithms.
class Stopwatch {
 public:
  Stopwatch(const OpContext& context, const ProductKey& key, std::byte* block)
      : context_(context),
        key_(key),
        operands_(operands_in(block, key)),
        stream_(static_cast<cudaStream_t>(context.stream->native())),
        product_(describe(key)) {
    set_pointers(product_, operands_);
    int bytes = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, current_cuda_device()));
    fill_ = static_cast<std::size_t>(std::min<std::int64_t>(bytes, context.scratch_bytes));
    const std::lock_guard lock(library().mutex);
    handle_ = library().handle_of(current_cuda_device());
  }
  ~Stopwatch() { destroy(product_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  std::vector<cublasLtMatmulAlgo_t> algorithms() const {
    return proposals(handle_, product_, key_, max_proposals);
  }

  /// Times one call. The fill evicts operands from the level-2 cache, if the scratch is large
  /// enough, and lets the host enqueue the rest meanwhile. Infinite if the library refuses it.
  double seconds(const cublasLtMatmulAlgo_t& algorithm) {
    product_.algorithm = algorithm;
    CUDA_CHECK(cudaMemsetAsync(context_.scratch, 0, fill_, stream_));
    CUDA_CHECK(cudaEventRecord(start_.get(), stream_));
    std::byte* const workspace = context_.scratch + scratch_bytes_per_thread + cuda_bias_bytes;
    const bool done = enqueue(handle_, product_, key_, operands_, workspace, stream_);
    CUDA_CHECK(cudaEventRecord(end_.get(), stream_));
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start_.get(), end_.get()));
    return done ? double{milliseconds} * 1e-3 : std::numeric_limits<double>::infinity();
  }

 private:
  const OpContext& context_;
  const ProductKey& key_;
  Operands operands_;
  cudaStream_t stream_;
  Product product_;
  cublasLtHandle_t handle_ = nullptr;
  std::size_t fill_ = 0;
  TimedEvent start_, end_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// The median seconds of each algorithm. Rounds alternate between the algorithms, so that drift
/// over time affects all equally.
std::vector<double> medians(Stopwatch& watch, const std::vector<cublasLtMatmulAlgo_t>& algorithms) {
  std::vector<std::vector<double>> rounds(algorithms.size());
  for (int round = 0; round <= timed_rounds; ++round) {
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      const double seconds = watch.seconds(algorithms[i]);
      if (round > 0) rounds[i].push_back(seconds);
    }
  }
  std::vector<double> all;
  for (std::vector<double>& one : rounds) all.push_back(median(std::move(one)));
  return all;
}

ProductAlgorithm time_product(const OpContext& context, const ProductKey& key,
                              std::byte* operands) {
  Stopwatch watch(context, key, operands);
  const std::vector<cublasLtMatmulAlgo_t> algorithms = watch.algorithms();
  require(!algorithms.empty(), ExitCode::unavailable,
          "[matmul] cuBLASLt proposes no algorithm for a product that it has computed");
  const std::vector<double> seconds = medians(watch, algorithms);
  const auto fastest = std::ranges::min_element(seconds);
  const bool clear = *fastest < clear_gain * seconds.front();
  const auto chosen = clear ? static_cast<std::size_t>(fastest - seconds.begin()) : 0;
  return {.product = key,
          .words = std::bit_cast<decltype(ProductAlgorithm::words)>(algorithms[chosen]),
          .proposal = static_cast<int>(chosen),
          .seconds = seconds[chosen],
          .first_seconds = seconds.front()};
}

void use(std::span<const ProductAlgorithm> algorithms) {
  Library& kept = library();
  const std::lock_guard lock(kept.mutex);
  const int device = current_cuda_device();
  for (const ProductAlgorithm& one : algorithms) {
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(one.words);
    kept.chosen[one.product] = algorithm;
    const auto found = kept.products.find({device, one.product});
    if (found != kept.products.end()) found->second.algorithm = algorithm;
  }
}

std::int64_t cublaslt_version() { return static_cast<std::int64_t>(cublasLtGetVersion()); }

}  // namespace

void note_call(const ProductKey& key) {
  if (!notes().on) return;
  std::vector<NotedProduct>& list = notes().list;
  const auto found = std::ranges::find(list, key, &NotedProduct::product);
  if (found == list.end()) {
    list.push_back({key, 1});
  } else {
    ++found->calls;
  }
}

namespace {

/// The largest power of two up to 256 that divides both address and stride.
std::uint32_t alignment_of(const void* data, std::int64_t stride) {
  const auto address =
      reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uintptr_t>(stride) | 256U;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

/// The alignment assumed when an algorithm is proposed for a by_shape product, regardless of its
/// actual alignment.
constexpr std::uint32_t alignment_by_shape = 64;

ProductKey key_of(const Call& call, int multiprocessors) {
  const Matmul& args = call.args;
  const auto [by_a, by_b, by_c, by_vector] = call.strides;
  ProductKey key{.m = call.m,
                 .n = call.n,
                 .k = call.k,
                 .transpose_a = args.transpose_a,
                 .transpose_b = args.transpose_b,
                 .accumulate = args.accumulate,
                 .operand = args.a.dtype,
                 .result = args.c.dtype,
                 .epilogue = static_cast<std::uint32_t>(call.epilogue),
                 .multiprocessors = multiprocessors,
                 .count = call.count,
                 .strides = call.strides,
                 .alignments = {alignment_of(args.a.data, by_a), alignment_of(args.b.data, by_b),
                                alignment_of(args.c.data, by_c), alignment_of(call.vector, 0),
                                alignment_of(call.beside, 0)}};
  if (!args.by_shape) return key;
  if (*std::ranges::min_element(key.alignments) < alignment_by_shape) {
    throw Error(ExitCode::internal,
                "[matmul] operands of a product by its shape begin at multiples of " +
                    std::to_string(alignment_by_shape) + " bytes");
  }
  key.alignments.fill(alignment_by_shape);
  key.multiprocessors = 0;
  return key;
}

/// A product with the library's first proposal; `operation` is null if there is none.
Product proposed_product(cublasLtHandle_t handle, const ProductKey& key, const Operands& operands) {
  Product product = describe(key);
  set_pointers(product, operands);
  const auto found = proposals(handle, product, key, 1);
  if (found.empty()) {
    destroy(product);
    return {};
  }
  product.algorithm = found.front();
  return product;
}

/// The cached product, made on first use.
Product& kept_product(Library& kept, int device, const ProductKey& key, const Operands& operands,
                      bool by_shape) {
  auto& products = by_shape ? kept.by_shape : kept.products;
  const auto found = products.find({device, key});
  if (found != products.end()) return found->second;
  Product product = proposed_product(kept.handle_of(device), key, operands);
  const auto chosen = kept.chosen.find(key);
  if (!by_shape && chosen != kept.chosen.end()) product.algorithm = chosen->second;
  return products.emplace(std::pair(device, key), product).first->second;
}

}  // namespace

void fail_unknown(const Call& call) {
  throw Error(ExitCode::unavailable, "[matmul] cuBLASLt has no algorithm for m " +
                                         std::to_string(call.m) + ", n " + std::to_string(call.n) +
                                         ", k " + std::to_string(call.k) + ", " +
                                         std::string(name_of(call.args.a.dtype)) + " to " +
                                         std::string(name_of(call.args.c.dtype)));
}

/// Products with varying extents are not cached, because their number is unbounded.
bool enqueue_product(const Call& call, const OpContext& context, std::byte* workspace) {
  Library& kept = library();
  const std::lock_guard lock(kept.mutex);
  const int device = current_cuda_device();
  const cublasLtHandle_t handle = kept.handle_of(device);
  const auto stream = static_cast<cudaStream_t>(context.stream->native());
  const Matmul& args = call.args;
  const ProductKey key = key_of(call, context.product_sms);
  const Operands operands{args.a.data, args.b.data, args.c.data, call.vector, call.beside};
  std::byte* const of_library = workspace + cuda_bias_bytes;
  if (args.varies) {
    const Product product = proposed_product(handle, key, operands);
    if (product.operation == nullptr) return false;
    const bool done = enqueue(handle, product, key, operands, of_library, stream);
    destroy(product);
    return done;
  }
  Product& product = kept_product(kept, device, key, operands, args.by_shape);
  if (product.operation == nullptr) return false;
  set_pointers(product, operands);
  if (!enqueue(handle, product, key, operands, of_library, stream)) {
    destroy(product);
    product = {};
    return false;
  }
  if (!args.by_shape) note_call(key);
  return true;
}

namespace {

// Available in the headers since CUDA 12.9.
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

/// A format in the library's terms. The library is column-major, so b is its first operand.
struct Words {
  cudaDataType_t operand = CUDA_R_8F_E4M3, result = CUDA_R_16BF;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  std::int32_t first_scales = 0, second_scales = 0;  // cublasLtMatmulMatrixScale_t
};

/// The library's terms for a format; nullopt for scales that the headers do not have.
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
  product.first = layout_of(words.operand, one.n, one.k);
  product.second = layout_of(words.operand, one.m, one.k);
  product.result = layout_of(words.result, one.m, one.n);
  return product;
}

/// Whether the status says that the library lacks a format; it may report an invalid value, too.
bool means_no_form(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_NOT_SUPPORTED;
}

/// A product with the library's first proposal; `operation` is null if there is none.
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
      kept;  // one per device and product; guarded by the library's mutex
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

const CudaProducts products_part_of_module{.version = cublaslt_version,
                                           .note = begin_notes,
                                           .noted = end_notes,
                                           .operand_bytes = operand_bytes,
                                           .time = time_product,
                                           .use = use,
                                           .enqueue_rate = enqueue_rate};

}  // namespace trainctl::cuda
