// The module's part for device/: which devices there are, and their memory.
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "device/cuda_check.h"
#include "device/cuda_device.h"
#include "device/stream_cuda.h"

namespace trainctl {
namespace {

/// 13000 -> "13.0"
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string why_unusable() {
  int driver = 0;
  int runtime = 0;
  CUDA_CHECK(cudaDriverGetVersion(&driver));
  CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  if (driver == 0) return "no CUDA device: no NVIDIA driver is loaded";
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver is too old: it supports CUDA " + version_text(driver) +
           ", the module was built for CUDA " + version_text(runtime);
  }
  if (status == cudaSuccess && count > 0) return "";
  cudaGetLastError();
  return std::string("no CUDA device: ") +
         cudaGetErrorString(status == cudaSuccess ? cudaErrorNoDevice : status);
}

int device_count() {
  int count = 0;
  CUDA_CHECK(cudaGetDeviceCount(&count));
  return count;
}

CudaDeviceProperties properties(int device) {
  cudaDeviceProp found{};
  CUDA_CHECK(cudaGetDeviceProperties(&found, device));
  return CudaDeviceProperties{found.name, found.major * 10 + found.minor, found.multiProcessorCount,
                              static_cast<std::int64_t>(found.totalGlobalMem), found.l2CacheSize};
}

void select(int device) { CUDA_CHECK(cudaSetDevice(device)); }

[[noreturn]] void refuse_memory(std::int64_t bytes) {
  cudaGetLastError();
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  const int device = current_cuda_device();
  const auto mebibytes = [](std::size_t count) { return std::to_string(count >> 20) + " MiB"; };
  throw Error(ExitCode::unavailable, "[cuda] " + mebibytes(static_cast<std::size_t>(bytes)) +
                                         " asked for on device " + std::to_string(device) + " (" +
                                         properties(device).name + "), " + mebibytes(free_bytes) +
                                         " of " + mebibytes(total_bytes) + " are free");
}

void* allocate(std::int64_t bytes) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, count);
  if (status == cudaErrorMemoryAllocation) refuse_memory(bytes);
  CUDA_CHECK(status);
  // The default stream does not order itself before non-blocking streams: wait for the zeroes.
  CUDA_CHECK(cudaMemset(data, 0, count));
  CUDA_CHECK(cudaStreamSynchronize(nullptr));
  return data;
}

/// Failures are dropped: at the end of a process the driver may have gone before us.
void release(void* data) noexcept {
  if (cudaFree(data) != cudaSuccess) cudaGetLastError();
}

void* allocate_host(std::int64_t bytes) {
  void* data = nullptr;
  CUDA_CHECK(cudaMallocHost(&data, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
  return std::memset(data, 0, static_cast<std::size_t>(bytes));
}

void release_host(void* data) noexcept {
  if (cudaFreeHost(data) != cudaSuccess) cudaGetLastError();
}

/// A copy from memory that can be paged returns once the driver has taken the bytes.
void copy(void* to, const void* from, std::int64_t bytes) {
  CUDA_CHECK(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault));
  CUDA_CHECK(cudaStreamSynchronize(nullptr));
}

void finish() noexcept {
  if (cudaDeviceSynchronize() != cudaSuccess) cudaGetLastError();
}

void* make_mark() {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
  return event;
}

void release_mark(void* mark) noexcept {
  if (cudaEventDestroy(static_cast<cudaEvent_t>(mark)) != cudaSuccess) cudaGetLastError();
}

/// In a capture it is work of the graph: each launch sets the mark.
void set_mark(void* mark, void* stream) {
  auto* const queue = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(queue, &status));
  const bool captured = status != cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaEventRecordWithFlags(static_cast<cudaEvent_t>(mark), queue,
                                      captured ? cudaEventRecordExternal : cudaEventRecordDefault));
}

double seconds_between(void* earlier, void* later) {
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(earlier),
                                  static_cast<cudaEvent_t>(later)));
  return double{milliseconds} * 1e-3;
}

void begin_range(const char* name) { nvtxRangePushA(name); }

void end_range() { nvtxRangePop(); }

const CudaModule device_part{.streams = &cuda_streams,
                             .why_unusable = why_unusable,
                             .device_count = device_count,
                             .properties = properties,
                             .select = select,
                             .allocate = allocate,
                             .release = release,
                             .allocate_host = allocate_host,
                             .release_host = release_host,
                             .copy = copy,
                             .finish = finish,
                             .make_mark = make_mark,
                             .release_mark = release_mark,
                             .set_mark = set_mark,
                             .seconds_between = seconds_between,
                             .join_streams = join_streams,
                             .begin_capture = begin_capture,
                             .abandon_capture = abandon_capture,
                             .end_capture = end_capture,
                             .launch_graph = launch_graph,
                             .release_graph = release_graph,
                             .begin_range = begin_range,
                             .end_range = end_range};

}  // namespace
}  // namespace trainctl

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_device() {
  return {&trainctl::device_part, sizeof(trainctl::CudaModule)};
}
