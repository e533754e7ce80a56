#include "faults.h"

#include <cublasLt.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/cuda_check.h"
#include "machine.h"
#include "ops/cuda/device_math.cuh"

namespace cuda_on_host {
namespace {

using trainctl::cuda::Grid;
using trainctl::cuda::launch;

constexpr int threads = 128;

/// Memory of a device with numbers that count up from 0, and a stream.
class Setting {
 public:
  explicit Setting(int count = threads) : count_(count) {
    CUDA_CHECK(cudaSetDevice(0));
    for (cudaStream_t* made : {&stream, &other}) {
      CUDA_CHECK(cudaStreamCreateWithFlags(made, cudaStreamNonBlocking));
    }
    const auto bytes = static_cast<std::size_t>(count) * sizeof(int);
    for (int** data : {&from, &to}) CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(data), bytes));
    host.resize(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) host[static_cast<std::size_t>(i)] = i;
    copy(from, host.data());
    CUDA_CHECK(cudaStreamSynchronize(stream));
  }
  ~Setting() {
    cudaStreamDestroy(stream);
    cudaStreamDestroy(other);
    cudaFree(from);
    cudaFree(to);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

  void copy(void* target, const void* source) {
    const auto bytes = static_cast<std::size_t>(count_) * sizeof(int);
    CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream));
  }
  /// "wrong" unless to[i] is expected(i).
  template <class Expected>
  std::string check(const Expected& expected) {
    copy(host.data(), to);
    CUDA_CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < count_; ++i) {
      if (host[static_cast<std::size_t>(i)] != expected(i)) return "wrong";
    }
    return "";
  }

  cudaStream_t stream = nullptr, other = nullptr;
  int* from = nullptr;
  int* to = nullptr;
  std::vector<int> host;

 private:
  int count_;
};

template <class Body>
std::string found_by(const Body& body) {
  try {
    return body();
  } catch (const trainctl::Error& error) {
    return error.what();
  }
}

__global__ void exchange_kernel(const int* from, int* to, bool with_barrier) {
  struct Values;
  int* values = trainctl::cuda::static_shared<Values, int, threads>();
  const int i = static_cast<int>(threadIdx.x);
  values[i] = from[i];
  if (with_barrier) __syncthreads();
  to[i] = values[threads - 1 - i];
}

std::string exchange_in_block(bool with_barrier) {
  return found_by([&] {
    Setting setting;
    launch(exchange_kernel, Grid{dim3(1), dim3(threads)}, setting.stream, setting.from, setting.to,
           with_barrier);
    return setting.check([](int i) { return threads - 1 - i; });
  });
}

__global__ void add_kernel(const int* from, int* to, int count, int value) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) to[i] = from[i] + value;
}

std::string wait_for_stream(bool with_event) {
  return found_by([&] {
    Setting setting;
    const Grid grid{dim3(1), dim3(threads)};
    cudaEvent_t event = nullptr;
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    launch(add_kernel, grid, setting.other, setting.from, setting.to, threads, 5);
    CUDA_CHECK(cudaEventRecord(event, setting.other));
    if (with_event) CUDA_CHECK(cudaStreamWaitEvent(setting.stream, event, 0));
    launch(add_kernel, grid, setting.stream, setting.to, setting.to, threads, 1);
    const std::string result = setting.check([](int i) { return i + 6; });
    CUDA_CHECK(cudaEventDestroy(event));
    CUDA_CHECK(cudaStreamSynchronize(setting.other));
    return result;
  });
}

std::string free_before(bool with_synchronize) {
  return found_by([&] {
    Setting setting;
    int* extra = nullptr;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&extra), threads * sizeof(int)));
    launch(add_kernel, Grid{dim3(1), dim3(threads)}, setting.stream, setting.from, extra, threads,
           1);
    if (with_synchronize) CUDA_CHECK(cudaStreamSynchronize(setting.stream));
    CUDA_CHECK(cudaFree(extra));
    CUDA_CHECK(cudaStreamSynchronize(setting.stream));
    return std::string();
  });
}

std::string write_elements(int allocated, int written) {
  return found_by([&] {
    Setting setting(allocated);
    const auto blocks = static_cast<unsigned>((written + threads - 1) / threads);
    launch(add_kernel, Grid{dim3(blocks), dim3(threads)}, setting.stream, setting.to, setting.to,
           written, 1);
    CUDA_CHECK(cudaStreamSynchronize(setting.stream));
    return std::string();
  });
}

__global__ void read_kernel(const int* from, int index, int* to) { to[0] = from[index]; }

std::string read_at(int allocated, int index) {
  return found_by([&] {
    Setting setting(allocated);
    launch(read_kernel, Grid{dim3(1), dim3(1)}, setting.stream, setting.from, index, setting.to);
    CUDA_CHECK(cudaStreamSynchronize(setting.stream));
    return std::string();
  });
}

__global__ void meet_kernel(bool all_threads, bool same_place) {
  if (!all_threads && threadIdx.x >= 32) return;
  if (same_place || threadIdx.x < 64) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

std::string meet(bool all_threads, bool same_place) {
  return found_by([&] {
    Setting setting;
    launch(meet_kernel, Grid{dim3(2), dim3(threads)}, setting.stream, all_threads, same_place);
    CUDA_CHECK(cudaStreamSynchronize(setting.stream));
    return std::string();
  });
}

__global__ void shuffle_kernel(const int* from, int* to, bool all_lanes) {
  const int i = static_cast<int>(threadIdx.x);
  if (!all_lanes && i % 32 == 7) return;
  to[i] = __shfl_xor_sync(0xffffffffU, from[i], 1);
}

std::string shuffle(bool all_lanes) {
  return found_by([&] {
    Setting setting;
    launch(shuffle_kernel, Grid{dim3(1), dim3(threads)}, setting.stream, setting.from, setting.to,
           all_lanes);
    return setting.check([](int i) { return i ^ 1; });
  });
}

struct alignas(16) Four {
  int at[4];
};

__global__ void load_kernel(const int* from, int* to) {
  const Four four = *reinterpret_cast<const Four*>(from);
  to[0] = four.at[0];
}

std::string load_sixteen(int offset) {
  return found_by([&] {
    Setting setting;
    launch(load_kernel, Grid{dim3(1), dim3(1)}, setting.stream, setting.from + offset, setting.to);
    CUDA_CHECK(cudaStreamSynchronize(setting.stream));
    return std::string();
  });
}

__global__ void sum_kernel(const int* from, int* to, bool initialised) {
  int* sums = trainctl::cuda::dynamic_shared<int>();
  const int i = static_cast<int>(threadIdx.x);
  if (initialised) sums[i] = 0;
  sums[i] += from[i];
  to[i] = sums[i];
}

std::string sum_shared(bool initialised) {
  return found_by([&] {
    Setting setting;
    launch(sum_kernel, Grid{dim3(1), dim3(threads), threads * sizeof(int)}, setting.stream,
           setting.from, setting.to, initialised);
    return setting.check([](int i) { return i; });
  });
}

__global__ void copy_kernel(const int* from, int* to, bool with_wait) {
  int* values = trainctl::cuda::dynamic_shared<int>();
  const int i = static_cast<int>(threadIdx.x);
  trainctl::cuda::start_copy(values + 4 * i, from + 4 * i, true);
  trainctl::cuda::commit_copies();
  if (with_wait) trainctl::cuda::wait_for_copies<0>();
  for (int j = 0; j < 4; ++j) to[4 * i + j] = values[4 * i + j];
  if (!with_wait) trainctl::cuda::wait_for_copies<0>();
}

std::string copy_asynchronously(bool with_wait) {
  return found_by([&] {
    Setting setting;
    launch(copy_kernel, Grid{dim3(1), dim3(threads / 4), threads * sizeof(int)}, setting.stream,
           setting.from, setting.to, with_wait);
    return setting.check([](int i) { return i; });
  });
}

__global__ void write_shared_kernel(int beyond) {
  int* values = trainctl::cuda::dynamic_shared<int>();
  values[static_cast<int>(threadIdx.x) + beyond] = 1;
}

std::string write_shared(int beyond) {
  return found_by([&] {
    Setting setting;
    launch(write_shared_kernel, Grid{dim3(1), dim3(threads), threads * sizeof(int)}, setting.stream,
           beyond);
    CUDA_CHECK(cudaStreamSynchronize(setting.stream));
    return std::string();
  });
}

__global__ void join_kernel(int* to) {
  const int i = static_cast<int>(threadIdx.x);
  int right = 0;
  for (int round = 1; round <= 8; ++round) {
    const int sum = trainctl::cuda::block_sum(i * round);
    const float most = trainctl::cuda::block_max(static_cast<float>(i * round));
    int total = 0;
    const int rank = trainctl::cuda::block_rank(i % round == 0, total);
    if (sum == round * threads * (threads - 1) / 2) ++right;
    if (most == static_cast<float>(round * (threads - 1))) ++right;
    if (rank == (i + round - 1) / round && total == (threads + round - 1) / round) ++right;
  }
  // One collective is called twice, with nothing between.
  for (int round = 1; round <= 8; ++round) {
    if (trainctl::cuda::block_sum(round) == round * threads) ++right;
  }
  for (int round = 1; round <= 8; ++round) {
    const auto mine = static_cast<float>(i == 40 ? round : -round);
    if (trainctl::cuda::block_max(mine) == static_cast<float>(round)) ++right;
  }
  for (int round = 1; round <= 8; ++round) {
    int total = 0;
    const int rank = trainctl::cuda::block_rank(i < round * 10, total);
    if (rank == min(i, round * 10) && total == round * 10) ++right;
  }
  to[i] = right;
}

std::string join_blocks() {
  return found_by([&] {
    Setting setting;
    launch(join_kernel, Grid{dim3(1), dim3(threads)}, setting.stream, setting.to);
    return setting.check([](int) { return 48; });
  });
}

std::string read_on_host(bool closed) {
  return found_by([&] {
    Setting setting;
    Machine::get().close_memory(closed);
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL);
      _exit(*static_cast<volatile int*>(setting.from + 3) == 3 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    const std::string right = setting.check([](int) { return -1; });  // `to` is poisoned
    Machine::get().close_memory(false);
    if (!right.empty()) return right;
    return std::string(WIFSIGNALED(status) ? "ended by a signal" : "");
  });
}

std::string launch_with(int block_threads, int shared_kib) {
  return found_by([&] {
    Setting setting;
    const Grid grid{dim3(1), dim3(static_cast<unsigned>(block_threads)),
                    static_cast<std::size_t>(shared_kib) << 10};
    launch(write_shared_kernel, grid, setting.stream, 0);
    CUDA_CHECK(cudaStreamSynchronize(setting.stream));
    return std::string();
  });
}

/// A product of 8 x 16 and 16 x 4 bf16 numbers, column by column, with a bias and GELU.
class EpilogueProduct {
 public:
  EpilogueProduct() : setting_(1024) {
    expect(cublasLtCreate(&handle_));
    expect(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    expect(cublasLtMatrixLayoutCreate(&a_, CUDA_R_16BF, 8, 16, 8));
    expect(cublasLtMatrixLayoutCreate(&b_, CUDA_R_16BF, 16, 4, 16));
    expect(cublasLtMatrixLayoutCreate(&d_, CUDA_R_16BF, 8, 4, 8));
  }
  ~EpilogueProduct() {
    for (const cublasLtMatrixLayout_t layout : {a_, b_, d_}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(operation_);
  }
  EpilogueProduct(const EpilogueProduct&) = delete;
  EpilogueProduct& operator=(const EpilogueProduct&) = delete;

  std::string run(EpilogueFault fault) {
    const bool short_matrix = fault == EpilogueFault::short_matrix;
    std::byte* const memory = reinterpret_cast<std::byte*>(setting_.to);
    std::byte* const end = memory + 4096;
    std::byte* const aux = short_matrix ? end - 32 : memory + 2048;
    const bool backward = fault == EpilogueFault::other_epilogue;
    const std::uint32_t epilogue =
        backward ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<std::byte*>(setting_.from) + 1024);
    const bool other_type = fault == EpilogueFault::other_type;
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t{other_type ? CUDA_R_32F : CUDA_R_16BF});
    const std::int64_t stride = fault == EpilogueFault::narrow_rows ? 12 : 8;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
        fault == EpilogueFault::overlap ? std::int64_t{0} : stride);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    if (fault == EpilogueFault::other_algorithm) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
    }
    if (!propose()) return "refused";
    if (fault == EpilogueFault::unaligned) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux + 2);
    }
    if (fault == EpilogueFault::same_memory) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, memory);
    }
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    const float alpha = 1;
    const float beta = 0;
    const cublasStatus_t status = cublasLtMatmul(
        handle_, operation_, &alpha, setting_.from, a_, setting_.from + 64, b_, &beta, memory, d_,
        memory, d_, &proposal_.algo, memory + 1024, 512, setting_.stream);
    if (status != CUBLAS_STATUS_SUCCESS) return "refused";
    // The operands are close to 0, and so are the results; what was not written is poisoned.
    const auto is_result = [](int i) { return i < 16 || (i >= 512 && i < 528); };
    setting_.copy(setting_.host.data(), memory);
    CUDA_CHECK(cudaStreamSynchronize(setting_.stream));
    for (int i = 0; i < 1024; ++i) {
      if (is_result(i) && setting_.host[static_cast<std::size_t>(i)] == -1) return "wrong";
    }
    return "";
  }

 private:
  static void expect(cublasStatus_t status) {
    trainctl::require(status == CUBLAS_STATUS_SUCCESS, trainctl::ExitCode::internal, "cuBLASLt");
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    expect(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value));
  }
  bool propose() {
    cublasLtMatmulPreference_t preference = nullptr;
    expect(cublasLtMatmulPreferenceCreate(&preference));
    int found = 0;
    cublasLtMatmulAlgoGetHeuristic(handle_, operation_, a_, b_, d_, d_, preference, 1, &proposal_,
                                   &found);
    expect(cublasLtMatmulPreferenceDestroy(preference));
    return found == 1;
  }

  Setting setting_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulHeuristicResult_t proposal_{};
};

std::string multiply_with(EpilogueFault fault) {
  return found_by([&] { return EpilogueProduct().run(fault); });
}

/// to = from + 1 on `other`, then to += 2 and from += 1 on `stream`.
void capture_both(Setting& setting, const std::string& mistake, cudaEvent_t outside) {
  const Grid grid{dim3(1), dim3(threads)};
  cudaEvent_t fork = nullptr;
  cudaEvent_t join = nullptr;
  for (cudaEvent_t* event : {&fork, &join}) {
    CUDA_CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  CUDA_CHECK(cudaEventRecord(fork, setting.stream));
  CUDA_CHECK(cudaStreamWaitEvent(setting.other, fork, 0));
  if (mistake == "event_from_outside") CUDA_CHECK(cudaStreamWaitEvent(setting.other, outside, 0));
  launch(add_kernel, grid, setting.other, setting.from, setting.to, threads, 1);
  CUDA_CHECK(cudaEventRecord(join, setting.other));
  if (mistake == "no_edge") {
    launch(add_kernel, grid, setting.stream, setting.to, setting.to, threads, 2);
  }
  if (mistake != "unjoined") CUDA_CHECK(cudaStreamWaitEvent(setting.stream, join, 0));
  if (mistake != "no_edge") {
    launch(add_kernel, grid, setting.stream, setting.to, setting.to, threads, 2);
  }
  launch(add_kernel, grid, setting.stream, setting.from, setting.from, threads, 1);
  if (mistake == "host_waits") CUDA_CHECK(cudaStreamSynchronize(setting.stream));
  if (mistake == "query_of_captured") CUDA_CHECK(cudaEventQuery(join));
  void* extra = nullptr;
  if (mistake == "allocates") CUDA_CHECK(cudaMalloc(&extra, 4));
}

std::string launch_graph(const char* mistake) {
  return found_by([&] {
    Setting setting;
    cudaEvent_t outside = nullptr;
    CUDA_CHECK(cudaEventCreateWithFlags(&outside, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventRecord(outside, setting.other));
    CUDA_CHECK(cudaStreamBeginCapture(setting.stream, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      capture_both(setting, mistake, outside);
    } catch (...) {
      cudaStreamEndCapture(setting.stream, &graph);
      throw;
    }
    CUDA_CHECK(cudaStreamEndCapture(setting.stream, &graph));
    cudaGraphExec_t ready = nullptr;
    CUDA_CHECK(cudaGraphInstantiate(&ready, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; ++i) CUDA_CHECK(cudaGraphLaunch(ready, setting.stream));
    CUDA_CHECK(cudaGraphExecDestroy(ready));
    return setting.check([](int i) { return i + 5; });
  });
}

void restart(std::uint64_t seed, const char* order) { Machine::get().restart(seed, order); }

int streams(int device) {
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().streams_of(device);
}

std::int64_t enqueued(const char* kind) {
  const std::string_view names[enqueued_kinds] = {"kernel", "product", "attention", "copy",
                                                  "memset"};
  const auto found = std::find(std::begin(names), std::end(names), kind);
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().enqueued(static_cast<Enqueued>(found - std::begin(names)));
}

const Faults faults{.restart = restart,
                    .streams = streams,
                    .enqueued = enqueued,
                    .exchange_in_block = exchange_in_block,
                    .wait_for_stream = wait_for_stream,
                    .free_before = free_before,
                    .write_elements = write_elements,
                    .read_at = read_at,
                    .meet = meet,
                    .shuffle = shuffle,
                    .load_sixteen = load_sixteen,
                    .sum_shared = sum_shared,
                    .copy_asynchronously = copy_asynchronously,
                    .write_shared = write_shared,
                    .join_blocks = join_blocks,
                    .read_on_host = read_on_host,
                    .launch_with = launch_with,
                    .multiply_with = multiply_with,
                    .launch_graph = launch_graph};

}  // namespace
}  // namespace cuda_on_host

extern "C" [[gnu::visibility("default")]] const cuda_on_host::Faults* cuda_on_host_faults() {
  return &cuda_on_host::faults;
}
