#include "ops/cuda/cublas/timed.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "base/round_up.h"
#include "base/scratch.h"
#include "device/cuda_check.h"
#include "ops/cuda/cublas/library.h"

namespace trainctl::cuda {
namespace {

constexpr int most_proposals = 8;
constexpr int timed_rounds = 5;  // after one that loads kernels
/// A faster one is taken only below this share of the first proposal's time, which clocks and other
/// work of the device do not reach by chance alone.
constexpr double clear_gain = 0.98;

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof ProductAlgorithm::words);

/// Of one thread, which is a rank's.
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

/// Where operands lie in one block, and its size.
struct Places {
  std::array<std::int64_t, 5> offsets{};  // a, b, c, vector, beside
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
    // Aligned as in the call, not better: what fits that could be refused or slower here.
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

/// Calls one product by one algorithm or another.
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
    return proposals(handle_, product_, key_, most_proposals);
  }

  /// The fill takes the second-level cache from the operands, as far as the scratch is as large,
  /// and while it runs the host enqueues the rest. Infinite: the library refuses the product.
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

/// Of each algorithm; they take turns, so that what changes over time meets all alike.
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

const CudaProducts products_part_of_module{.version = cublaslt_version,
                                           .note = begin_notes,
                                           .noted = end_notes,
                                           .operand_bytes = operand_bytes,
                                           .time = time_product,
                                           .use = use};

}  // namespace trainctl::cuda
