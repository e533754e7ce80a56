// The CUDA backend, for code without CUDA headers. The backend is in a shared module,
// libtrainctl_cuda.so, which the first call opens and which stays open. If the module or a usable
// device is missing, all functions except the last two throw Error{unavailable} with the reason.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "device/stream.h"

namespace trainctl {

struct CudaDeviceProperties {
  std::string name;    // "NVIDIA H200"
  int capability = 0;  // 90 is compute capability 9.0
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;  // memory of the whole device
  std::int64_t cache_bytes = 0;   // size of the level-2 cache
};

/// The module's function table for device/. ops/ and comm/ have tables of their own.
struct CudaModule {
  const StreamApi* streams;
  /// Returns "" if the driver and at least one device are usable, otherwise the reason in one line.
  std::string (*why_unusable)();
  int (*device_count)();
  CudaDeviceProperties (*properties)(int device);
  void (*select)(int device);
  void* (*allocate)(std::int64_t bytes);
  void (*release)(void* data) noexcept;
  /// Zeroed page-locked host memory, which devices can copy from and to while their streams
  /// continue.
  void* (*allocate_host)(std::int64_t bytes);
  void (*release_host)(void* data) noexcept;
  void (*copy)(void* to, const void* from, std::int64_t bytes);
  /// Waits until the calling thread's device has finished all work, including that of destroyed
  /// streams.
  void (*finish)() noexcept;
  // Events that carry a time (TimeMarks).
  void* (*make_mark)();
  void (*release_mark)(void* mark) noexcept;
  void (*set_mark)(void* mark, void* stream);
  double (*seconds_between)(void* earlier, void* later);
  // Part of WorkGraph. `stream` (native) waits for all other streams of the calling thread.
  void (*join_streams)(void* stream);
  void (*begin_capture)(void* stream);
  void (*abandon_capture)(void* stream) noexcept;
  void* (*end_capture)(void* stream);
  void (*launch_graph)(void* graph, void* stream);
  void (*release_graph)(void* graph) noexcept;
  // Ranges of the calling thread in a profiler (NVTX); without one they cost nanoseconds.
  void (*begin_range)(const char* name);
  void (*end_range)();
};

/// Limit of the ranks that share a device; a kernel gets a pointer to the input of each rank.
inline constexpr std::size_t max_cuda_parts = 64;
/// The module's sum over ranks that share a device, for comm/. Enqueues the work; the result is
/// bit-identical to that of sum_in_rank_order (comm/host/host_group.h).
using CudaSum = void (*)(void* out, std::span<const void* const> parts, std::int64_t count,
                         DType dtype, Stream& stream);

/// The CUDA module, opened and checked once per process. Throws Error{unavailable} if it is missing
/// or has no usable device.
const CudaModule& cuda_module();

/// The module's table of sums. Throws like cuda_module().
CudaSum cuda_sum();

/// Streams on the calling thread's device. They refuse host tasks, which belong on CPU streams.
const StreamApi& cuda_stream_api();
/// Zeroed memory on the calling thread's device, 256-byte aligned; synchronous. Throws
/// Error{unavailable} with the sizes if there is not enough memory.
void* cuda_allocate(std::int64_t bytes);
/// Frees memory. The caller must have waited for work that uses it. While an exception propagates,
/// the device first stops waiting for other ranks (DeviceHealth) and finishes its work.
void cuda_release(void* data) noexcept;
/// Frees page-locked host memory in the same way.
void cuda_release_host(void* data) noexcept;
/// Copies between host and device memory, synchronously. Does not wait for streams: the caller must
/// have waited for the work that writes the bytes.
void cuda_copy(void* to, const void* from, std::int64_t bytes);
/// Selects the device of the calling thread's rank. Each rank calls it once, before its first
/// stream. Throws Error{unavailable} if there are too few devices, unless ranks share them.
void cuda_select_device(int local_rank, bool share = false);

/// The device of a rank, or -1 if there is none. With `share`, ranks use devices round-robin.
int cuda_device_of(std::int64_t local_rank, bool share);

/// The number of multiprocessors of a device minus `margin` (parallel.product_sm_margin). Throws
/// Error{unavailable} if none is left.
int cuda_multiprocessors_beside(int device, int margin);

/// The error message for a rank without a device, on a machine with `devices` devices.
std::string no_device_text(std::int64_t local_rank, std::int64_t devices);

/// A folder's part of the module, exported as `extern "C" CudaModulePart SYMBOL()`. `bytes` is the
/// table's size at compile time, by which a module of another build is detected and refused.
struct CudaModulePart {
  const void* table;
  std::int64_t bytes;
};

/// The table that the module exports as `symbol`; `bytes` is its expected size.
const void* cuda_module_part(const char* symbol, std::int64_t bytes);

/// The path of the module: TRAINCTL_CUDA_MODULE if set, else libtrainctl_cuda.so in the program's
/// folder or in ../lib from there.
std::filesystem::path cuda_module_file();
/// A part of module `file`; needs no device. Throws Error{unavailable} if the file, the symbol or
/// the size is wrong.
const void* open_cuda_part(const std::filesystem::path& file, const char* symbol,
                           std::int64_t bytes);

// Work on this thread's device may depend on other ranks, which may fail. A device that waits for a
// failed rank never finishes, and neither does a thread that frees its memory. Therefore a host
// that waits for the device also checks the other ranks, and a thread that unwinds abandons them
// before it frees memory.

/// Checks and abandons the ranks for which a device waits. Destroyed by the thread that made it.
class DeviceHealth {
 public:
  DeviceHealth();
  virtual ~DeviceHealth();
  DeviceHealth(const DeviceHealth&) = delete;
  DeviceHealth& operator=(const DeviceHealth&) = delete;

  /// If another rank failed, calls abandon() and throws Error{peer} naming the failure. Called many
  /// times per second while the host waits.
  virtual void check() = 0;
  /// Makes the device stop waiting for other ranks: its streams continue with undefined results. A
  /// second call does nothing.
  virtual void abandon() noexcept = 0;
  /// Names enqueued work that has not finished, "all_reduce ...; send ...", or "" if there is none.
  virtual std::string open_work() = 0;
};

/// Calls check() of every DeviceHealth of this thread.
void check_devices();
/// Whether this thread has any DeviceHealth.
bool checks_devices();
void abandon_devices() noexcept;
/// Unfinished work of this thread's device as "; under way: all_reduce ...", or "".
std::string open_device_work();

}  // namespace trainctl
