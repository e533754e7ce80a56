// The CUDA backend for code without CUDA headers: it is in one shared module,
// libtrainctl_cuda.so, which the first of these calls opens and which stays open. Every call except
// the last two throws Error{unavailable} with the reason if the module or a usable device is
// missing.
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
  std::int64_t memory_bytes = 0;  // of the whole device
  std::int64_t cache_bytes = 0;   // of its second level
};

/// The module's table for this folder. ops/ and comm/ have their own tables.
struct CudaModule {
  const StreamApi* streams;
  /// Empty if the driver and at least one device can be used; otherwise one line with the reason.
  std::string (*why_unusable)();
  int (*device_count)();
  CudaDeviceProperties (*properties)(int device);
  void (*select)(int device);
  void* (*allocate)(std::int64_t bytes);
  void (*release)(void* data) noexcept;
  void* (*allocate_host)(std::int64_t bytes);
  void (*release_host)(void* data) noexcept;
  void (*copy)(void* to, const void* from, std::int64_t bytes);
  /// Waits until the calling thread's device has done all its work, also that of streams which are
  /// gone.
  void (*finish)() noexcept;
  // Events that carry a time (TimeMarks).
  void* (*make_mark)();
  void (*release_mark)(void* mark) noexcept;
  void (*set_mark)(void* mark, void* stream);
  double (*seconds_between)(void* earlier, void* later);
  // Part of WorkGraph: waits for the streams of the calling thread, of which `stream` is one
  // (native).
  void (*join_streams)(void* stream);
  void (*begin_capture)(void* stream);
  void (*abandon_capture)(void* stream) noexcept;
  void* (*end_capture)(void* stream);
  void (*launch_graph)(void* graph, void* stream);
  void (*release_graph)(void* graph) noexcept;
  // Ranges of the calling thread for a profiler (NVTX); without one they cost a few nanoseconds.
  void (*begin_range)(const char* name);
  void (*end_range)();
};

/// The largest number of ranks that may share a device, since a kernel is given the part of each.
inline constexpr std::size_t max_cuda_parts = 64;
/// The module's sum over ranks that share a device, for comm/: enqueues what sum_in_rank_order
/// (comm/host/host_group.h) does, with the same bits.
using CudaSum = void (*)(void* out, std::span<const void* const> parts, std::int64_t count,
                         DType dtype, Stream& stream);

/// The module with a usable device; opened and checked once for the process.
const CudaModule& cuda_module();

/// Throws as cuda_module() does.
CudaSum cuda_sum();

/// Streams on the calling thread's device. Host tasks are refused: they belong on CPU streams.
const StreamApi& cuda_stream_api();
/// Zeroed memory of the calling thread's device, 256-byte aligned; synchronous. Throws
/// Error{unavailable} with the sizes if there is not enough.
void* cuda_allocate(std::int64_t bytes);
/// The caller has waited for the work that uses the memory; but while an exception propagates, this
/// thread's device first lets go of other ranks (DeviceHealth) and does what it was given.
void cuda_release(void* data) noexcept;
/// Host memory that devices copy from and to while their streams go on (page-locked); zeroed.
void* cuda_allocate_host(std::int64_t bytes);
void cuda_release_host(void* data) noexcept;
/// Copies between host and device memory and returns when it is done. Does not wait for streams:
/// the caller has waited for the work that writes the bytes.
void cuda_copy(void* to, const void* from, std::int64_t bytes);
/// Gives the calling thread the device of its rank. Each rank calls it once, before its first
/// stream. Throws Error{unavailable} if there are fewer devices, unless ranks share them.
void cuda_select_device(int local_rank, bool share = false);

/// The device of a rank, or -1: it has none. `share`: ranks take them in turns.
int cuda_device_of(std::int64_t local_rank, bool share);

/// Multiprocessors of a device without `margin` of them (parallel.product_sm_margin). Throws
/// Error{unavailable} where none is left.
int cuda_multiprocessors_beside(int device, int margin);

/// The message of such an error on a machine with `devices` devices.
std::string no_device_text(std::int64_t local_rank, std::int64_t devices);

/// How each folder's part of the module is exported: `extern "C" CudaModulePart SYMBOL()`. `bytes`
/// is the size of the table at compile time, so that a module of another build is refused.
struct CudaModulePart {
  const void* table;
  std::int64_t bytes;
};

/// The table that cuda_module()'s file exports as `symbol`, `bytes` long.
const void* cuda_module_part(const char* symbol, std::int64_t bytes);

/// The file to open: TRAINCTL_CUDA_MODULE if set, else libtrainctl_cuda.so in the program's folder
/// or in ../lib from there.
std::filesystem::path cuda_module_file();
/// A part of `file`, with or without a device. Throws Error{unavailable} if the file, the
/// symbol or the size is wrong.
const void* open_cuda_part(const std::filesystem::path& file, const char* symbol,
                           std::int64_t bytes);

// Work on this thread's device also depends on other ranks, which may fail. A device that waits for
// one of them waits for ever, and so does a thread that frees its memory; so a host that waits for
// the device looks at the other ranks, and a thread that unwinds lets go of them before it frees
// anything.

/// Belongs to the thread that makes it, which must also destroy it.
class DeviceHealth {
 public:
  DeviceHealth();
  virtual ~DeviceHealth();
  DeviceHealth(const DeviceHealth&) = delete;
  DeviceHealth& operator=(const DeviceHealth&) = delete;

  /// Throws Error{peer} naming what failed, after abandon(). Called while the host waits, many
  /// times per second.
  virtual void check() = 0;
  /// Ends what the device waits for without the other ranks: its streams go on, with undefined
  /// results. A second call does nothing.
  virtual void abandon() noexcept = 0;
  /// Work that the device has been given and has not done: "all_reduce ...; send ..."; or "".
  virtual std::string open_work() = 0;
};

/// All that this thread has made.
void check_devices();
/// Whether this thread has any.
bool checks_devices();
void abandon_devices() noexcept;
/// "; under way: all_reduce ..." or "".
std::string open_device_work();

}  // namespace trainctl
