// The devices of the CUDA runtime on the host: memory, streams and the order in which queued work
// runs. One lock guards all; a thread that waits for anything runs what may run next, on any
// device.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "chance.h"

namespace cuda_on_host {

/// Queued work of a stream. It is done once run() returns true; until then the stream stands still,
/// and `needs` may name the stream that has to go on first.
struct Work {
  std::function<bool()> run;
  cudaStream_t needs = nullptr;
};

/// Multiprocessors of each device.
inline constexpr int multiprocessors_on_host = 4;

/// Kinds of work that a program enqueues.
enum class Enqueued { kernel, product, attention, copy, memset };
inline constexpr std::size_t enqueued_kinds = 5;

/// Makes such work; a graph does so at each launch.
using Maker = std::function<Work()>;

class Capture;  // graphs.h

/// A place in a stream that an event was recorded at.
struct Mark {
  cudaStream_t stream = nullptr;
  bool reached = false;
  bool told_early = false;  // CUDA_ON_HOST_UNAWAITED: the host is told that it is reached
  std::chrono::steady_clock::time_point time{};  // when
  float product_time = 0;                        // Device::product_time then
  std::uint64_t since = 0, before = 0;  // works of the stream when it was recorded, and before it
};

/// An allocation of the program. Its end lies before a page that cannot be accessed, as far as the
/// alignment of its start allows; the bytes between are checked after each work.
struct Allocation {
  std::size_t bytes = 0;
  int device = 0;
  void* mapped = nullptr;
  std::size_t mapped_bytes = 0;
};

/// When queued work runs.
enum class Mode {
  eager,   // as soon as it can
  lazy,    // when somebody waits for it
  random,  // a few at a time, of streams by random priority
};

struct Device {
  cudaError_t error = cudaSuccess;  // once a kernel has failed, for good
  std::string message;
  std::size_t used_bytes = 0;
  float product_time = 0;  // of all its products so far, in milliseconds (product_times.h)
};

class Machine {
 public:
  static Machine& get();

  std::mutex mutex;
  /// Devices that have failed are as new; what runs next depends on this seed and order.
  void restart(std::uint64_t seed, const std::string& order);
  /// From now on the host cannot read or write memory of devices, except where work runs. That
  /// takes some system calls for each work and allocation.
  void close_memory(bool closed);
  /// The device of the calling thread.
  static int& device();
  Device& at(int number) { return devices_[static_cast<std::size_t>(number)]; }
  int devices() const { return static_cast<int>(devices_.size()); }
  std::size_t memory_bytes() const { return memory_bytes_; }
  /// The compute capability of a device, before its dot.
  int major_of(int device) const { return device < first_other_ ? 9 : 8; }
  Chance& chance() { return chance_; }
  /// Copies of this size to the host are not waited for, as by a program that forgets to; 0: none.
  std::size_t unawaited_bytes() const { return unawaited_bytes_; }

  void add(cudaStream_t stream);
  /// Once it has done what it still has to do.
  void remove(cudaStream_t stream);
  cudaStream_t default_stream();
  /// A stream of a device that is not done, perhaps one that is removed; null if all are done.
  cudaStream_t busy_stream(int device) const;
  /// The number of streams that the program has made and not destroyed.
  int streams_of(int device) const;

  /// Puts work into a stream's queue and, by the mode, runs some.
  void enqueue(cudaStream_t stream, Work work);
  /// Puts work that the program gives a stream into its queue, or into the graph that is captured
  /// from it.
  void give(cudaStream_t stream, const Maker& make);
  /// Notes that the program has enqueued something, itself or into a graph that it captures.
  void count(Enqueued kind) { ++enqueued_[static_cast<std::size_t>(kind)]; }
  /// How often it has done so.
  std::int64_t enqueued(Enqueued kind) const { return enqueued_[static_cast<std::size_t>(kind)]; }
  /// Somebody asks whether a place is reached: its stream continues, if it can, perhaps up to
  /// there.
  void advance(const Mark& mark);
  /// Runs work until `reached` holds: work of `stream`, or of any stream if it is null. Gives other
  /// threads the lock while nothing can run.
  void wait_until(std::unique_lock<std::mutex>& lock, cudaStream_t stream,
                  const std::function<bool()>& reached);
  /// A device frees memory once it has done its work. Here only collectives and messages are waited
  /// for, so that work which uses the memory later is found; if they do not end, the device fails.
  void wait_for_others(std::unique_lock<std::mutex>& lock);
  /// Whether a device waits for others in a collective or a message; set by NCCL.
  std::function<bool(int device)> communicates = [](int) { return false; };
  /// Other threads may look again.
  void notify() { changed_.notify_all(); }

  cudaError_t allocate(void** data, std::size_t bytes);
  cudaError_t release(void* data);
  /// The allocation that holds this address, or null.
  const Allocation* find(const void* address, const std::byte** begin) const;
  /// Whether [address, address + bytes) is host memory or lies within one allocation.
  bool is_whole(const void* address, std::size_t bytes) const;
  /// Sets bytes of an allocation. Whole pages of zeroes are given back to the system: they are
  /// zeroes when something uses them, and cost nothing before.
  static void set(void* data, int value, std::size_t bytes);
  /// Page-locked memory of the host, by where it begins, with its bytes.
  std::map<std::uintptr_t, std::size_t> page_locked;
  /// Whether a stream may copy from or to this memory of the host: all, or with
  /// CUDA_ON_HOST_PAGE_LOCKED what is page-locked.
  bool is_for_streams(const void* address) const;
  /// Marks the device as failed where some allocation was overrun.
  void check_overruns(int device);
  /// The device has failed: no work of it runs any more.
  void fail(int device, cudaError_t error, const std::string& message);

 private:
  Machine();
  void forget_removed();
  void protect(int access) const;
  bool run_head(cudaStream_t stream);
  bool run_any(int except_device);
  bool run_needed(cudaStream_t stream);
  bool run_for(cudaStream_t stream);  // what is waited for, if others shall not go on
  void end_run();

  std::vector<Device> devices_;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaStream_t> default_streams_;
  std::map<std::uintptr_t, Allocation> allocations_;
  std::condition_variable changed_;
  Mode mode_ = Mode::random;
  bool closed_ = false;
  bool open_ = false;  // although closed: work runs
  bool only_page_locked_ = false;
  Chance chance_;
  std::size_t memory_bytes_;
  std::size_t unawaited_bytes_;
  int first_other_;
  std::array<std::int64_t, enqueued_kinds> enqueued_{};
};

/// The message of the last failure of the calling thread.
std::string& last_message();

}  // namespace cuda_on_host

/// A stream: its queue, first in first out.
struct CUstream_st {
  int device = 0;
  unsigned long long id = 0;
  std::uint64_t priority = 0;
  bool running = false;  // its first work runs now
  bool removed = false;
  bool tells_early = false;  // see Mark, of the next event
  bool multiplies = false;   // it has had a product
  std::thread::id maker = std::this_thread::get_id();
  std::shared_ptr<cuda_on_host::Capture> capture;
  std::uint64_t done = 0;  // works so far
  std::deque<cuda_on_host::Work> queue;
};

struct CUevent_st {
  std::shared_ptr<cuda_on_host::Mark> latest;
  std::shared_ptr<cuda_on_host::Capture> capture;  // that it was recorded in last, if it was
  int place = 0;                                   // there
};
