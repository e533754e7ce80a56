// The functions of the CUDA runtime that the CUDA module calls, over machine.h. What is not here
// the module does not link with.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <mutex>

#include "device/cuda_check.h"
#include "graphs.h"
#include "launch.h"
#include "machine.h"
#include "planted.h"
#include "runtime.h"

using namespace cuda_on_host;

namespace cuda_on_host {

namespace {
thread_local cudaError_t last_error = cudaSuccess;
}

cudaError_t report(cudaError_t status, const std::string& message) {
  if (status != cudaSuccess && status != cudaErrorNotReady) {
    last_error = status;
    last_message() = message;
  }
  return status;
}

cudaError_t device_error() {
  const Device& device = Machine::get().at(Machine::device());
  return report(device.error, device.message);
}

cudaStream_t stream_or_default(cudaStream_t stream) {
  return stream != nullptr ? stream : Machine::get().default_stream();
}

}  // namespace cuda_on_host

namespace {

/// Runs `body` on the stream's device, unless that has failed.
Work work_of(cudaStream_t stream, std::function<void()> body) {
  const int device = stream->device;
  return {[device, body = std::move(body)] {
            Machine& machine = Machine::get();
            if (machine.at(device).error != cudaSuccess) return true;
            body();
            machine.check_overruns(device);
            return true;
          },
          nullptr};
}

cudaError_t enqueue_work(cudaStream_t stream, std::function<void()> body) {
  Machine& machine = Machine::get();
  stream = stream_or_default(stream);
  if (stream->device != Machine::device()) {
    return report(cudaErrorInvalidResourceHandle, "the stream belongs to another device");
  }
  if (stream == machine.default_stream()) {
    const cudaError_t refused = refuse_in_capture("work of the default stream");
    if (refused != cudaSuccess) return refused;
  }
  machine.give(stream, [stream, body = std::move(body)] { return work_of(stream, body); });
  return device_error();
}

/// Why the launch cannot be, by the limits of compute capability 9.0; empty if it can.
std::string refusal_of(const Launch& launch) {
  const auto count = [](const dim3& size) { return std::size_t{size.x} * size.y * size.z; };
  if (count(launch.blocks) == 0 || count(launch.threads) == 0) return "an empty grid";
  if (count(launch.threads) > 1024) return "more than 1024 threads in a block";
  if (launch.blocks.y > 65535 || launch.blocks.z > 65535 || launch.blocks.x > 0x7fffffffU) {
    return "too many blocks";
  }
  if (launch.shared_bytes > std::size_t{227} << 10) return "more than 227 KiB of shared memory";
  return "";
}

}  // namespace

namespace cuda_on_host {

void enqueue(const Launch& asked, cudaStream_t stream) {
  Launch launch = asked;
  if (!plant_in_launch(launch)) return;
  const std::lock_guard lock(Machine::get().mutex);
  const std::string refusal = refusal_of(launch);
  if (!refusal.empty()) {
    CUDA_CHECK(report(cudaErrorInvalidConfiguration, launch.name + ": " + refusal));
  }
  const int device = Machine::device();
  Machine::get().count(Enqueued::kernel);
  CUDA_CHECK(enqueue_work(stream, [launch, device] {
    const std::string fault = run(launch, Machine::get().chance());
    if (!fault.empty()) Machine::get().fail(device, cudaErrorLaunchFailure, fault);
  }));
}

/// "Forward<float>" of "void ...::launch(...) [with Params = {...Forward<float>}; Args = ...]"
std::string name_of(const char* function, const void* kernel) {
  const std::string all = function;
  const std::size_t with = all.find("Params = ");
  const std::size_t end = all.find("; Args");
  const std::string parameters =
      with == std::string::npos ? all : all.substr(with + 9, end - with - 9);
  char address[32];
  std::snprintf(address, sizeof address, "%p", kernel);
  return "kernel " + std::string(address) + " of " + parameters;
}

}  // namespace cuda_on_host

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = Machine::get().devices();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= Machine::get().devices()) return report(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "CUDA on the host");
  properties->major = Machine::get().major_of(device);
  properties->multiProcessorCount = multiprocessors_on_host;
  properties->totalGlobalMem = Machine::get().memory_bytes();
  properties->l2CacheSize = 64 << 10;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= Machine::get().devices()) return report(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = multiprocessors_on_host; return cudaSuccess;
    case cudaDevAttrL2CacheSize: *value = 64 << 10; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; return cudaSuccess;
    default: return report(cudaErrorNotSupported, "this attribute is not known on the host");
  }
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= Machine::get().devices()) return report(cudaErrorInvalidDevice);
  Machine::device() = planted("one_device") ? 0 : device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = Machine::device();
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  *total_bytes = machine.memory_bytes();
  *free_bytes = *total_bytes - machine.at(Machine::device()).used_bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  if (const cudaError_t refused = refuse_in_capture("cudaMalloc"); refused != cudaSuccess) {
    return refused;
  }
  if (machine.at(Machine::device()).error != cudaSuccess) return device_error();
  if (!planted("unaligned")) return report(machine.allocate(data, bytes));
  const cudaError_t status = machine.allocate(data, bytes + 4);
  if (status == cudaSuccess) *data = static_cast<std::byte*>(*data) + 4;
  return report(status);
}

/// Does not wait for work that uses the memory: such work fails.
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  if (const cudaError_t refused = refuse_in_capture("cudaFree"); refused != cudaSuccess) {
    return refused;
  }
  machine.wait_for_others(lock);
  if (planted("unaligned")) data = static_cast<std::byte*>(data) - 4;
  const cudaError_t status = machine.release(data);
  return status != cudaSuccess ? report(status, "it was not allocated") : device_error();
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*data == nullptr) return report(cudaErrorMemoryAllocation);
  const std::lock_guard lock(Machine::get().mutex);
  if (planted("pageable")) return cudaSuccess;
  Machine::get().page_locked[reinterpret_cast<std::uintptr_t>(*data)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().page_locked.erase(reinterpret_cast<std::uintptr_t>(data));
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  const std::byte* begin = nullptr;
  if (bytes > 0 && (machine.find(data, &begin) == nullptr || !machine.is_whole(data, bytes))) {
    return report(cudaErrorInvalidValue, "the bytes to set are not one allocation's");
  }
  stream = stream_or_default(stream);
  const bool waits = stream == machine.default_stream();  // of new memory
  if (planted("no_zeroes") && !waits) return cudaSuccess;
  if (!waits) machine.count(Enqueued::memset);
  return enqueue_work(stream, [=] {
    const std::byte* start = nullptr;
    if (bytes == 0) return;
    if (Machine::get().find(data, &start) == nullptr) {
      return Machine::get().fail(stream->device, cudaErrorIllegalAddress,
                                 "memory was freed before it was set");
    }
    Machine::set(data, value, bytes);
  });
}

cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  return cudaMemsetAsync(data, value, bytes, nullptr);
}

/// Host memory is read and written when the stream comes to it, as if all were page-locked: of
/// other memory CUDA would make the host wait.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  if (kind != cudaMemcpyDefault) {
    return report(cudaErrorInvalidMemcpyDirection, "only cudaMemcpyDefault is known on the host");
  }
  if (!machine.is_whole(to, bytes) || !machine.is_whole(from, bytes)) {
    return report(cudaErrorInvalidValue, "a copy reaches beyond an allocation");
  }
  stream = stream_or_default(stream);
  const std::byte* begin = nullptr;
  const bool to_device = machine.find(to, &begin) != nullptr;
  const bool from_device = machine.find(from, &begin) != nullptr;
  const bool waits = stream == machine.default_stream();  // cudaMemcpy, of any memory
  // Pageable memory is read before cudaMemcpy returns, but may not have arrived by then.
  std::vector<std::byte> staged;
  if (waits && to_device && !from_device) {
    const auto* const first = static_cast<const std::byte*>(from);
    staged.assign(first, first + bytes);
  }
  if (bytes > 0 && !waits &&
      ((!to_device && !machine.is_for_streams(to)) ||
       (!from_device && !machine.is_for_streams(from)))) {
    return report(cudaErrorInvalidValue, "an asynchronous copy of memory that is not page-locked");
  }
  stream->tells_early =
      from_device && !to_device && bytes > 0 && bytes == machine.unawaited_bytes();
  if (!waits && !plant_in_copy(stream, to, from, bytes)) return cudaSuccess;
  if (!waits) machine.count(Enqueued::copy);
  return enqueue_work(stream, [=, staged = std::move(staged)] {
    Machine& now = Machine::get();
    const std::byte* start = nullptr;
    if ((to_device && now.find(to, &start) == nullptr) ||
        (from_device && now.find(from, &start) == nullptr)) {
      return now.fail(stream->device, cudaErrorIllegalAddress,
                      "memory was freed before it was copied");
    }
    std::memcpy(to, staged.empty() ? from : staged.data(), bytes);
  });
}

/// Waits for what the host reads, and for nothing else (NVIDIA, CUDA runtime API, API
/// synchronization behavior).
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  bool to_host = false;
  {
    const std::lock_guard lock(Machine::get().mutex);
    const std::byte* begin = nullptr;
    to_host = Machine::get().find(to, &begin) == nullptr;
  }
  return status == cudaSuccess && to_host ? cudaStreamSynchronize(nullptr) : status;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorMisalignedAddress: return "cudaErrorMisalignedAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    default: return "a CUDA error";
  }
}

/// CUDA's words for what the tests compare, else what was found wrong.
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
      return last_message().empty() ? "invalid argument" : last_message().c_str();
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    default: return last_message().empty() ? cudaGetErrorName(error) : last_message().c_str();
  }
}

}  // extern "C"
