#include "machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "graphs.h"

namespace cuda_on_host {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t alignment = 256;
constexpr std::chrono::seconds longest_wait{20};
/// The byte at an address after an allocation's bytes. These bytes are NaNs as elements of 16 or 32
/// bits, each with a payload of its own, so that results computed from different ones differ.
std::byte filling(std::uintptr_t address) {
  if (address % 2 != 0) return std::byte{0xff};
  return std::byte{
      static_cast<unsigned char>(0xc1 | (address / 2 * 0x9e3779b97f4a7c15 >> 58 << 1))};
}

std::string setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

Mode mode_of(const std::string& order) {
  return order == "eager" ? Mode::eager : order == "lazy" ? Mode::lazy : Mode::random;
}

}  // namespace

std::string& last_message() {
  static thread_local std::string message;
  return message;
}

Machine& Machine::get() {
  static auto* const kept = new Machine;  // streams may outlive statics
  return *kept;
}

Machine::Machine()
    : devices_(std::stoul(setting("CUDA_ON_HOST_DEVICES", "4"))),
      default_streams_(devices_.size()),
      chance_(std::stoull(setting("CUDA_ON_HOST_SEED", "1"))),
      memory_bytes_(std::stoull(setting("CUDA_ON_HOST_MEMORY", "8589934592"))),
      unawaited_bytes_(std::stoull(setting("CUDA_ON_HOST_UNAWAITED", "0"))),
      first_other_(std::stoi(setting("CUDA_ON_HOST_OTHER_FROM", "1000"))) {
  mode_ = mode_of(setting("CUDA_ON_HOST_ORDER", "random"));
  closed_ = setting("CUDA_ON_HOST_CLOSED", "0") == "1";
  only_page_locked_ = setting("CUDA_ON_HOST_PAGE_LOCKED", "0") == "1";
}

void Machine::restart(std::uint64_t seed, const std::string& order) {
  const std::lock_guard lock(mutex);
  chance_ = Chance(seed);
  mode_ = mode_of(order);
  for (Device& one : devices_) {
    one.error = cudaSuccess;
    one.message.clear();
  }
  for (cudaStream_t stream : streams_) stream->priority = chance_.bits();
}

void Machine::protect(int access) const {
  for (const auto& [start, allocation] : allocations_) {
    mprotect(static_cast<std::byte*>(allocation.mapped) + page, allocation.mapped_bytes - 2 * page,
             access);
  }
}

void Machine::close_memory(bool closed) {
  const std::lock_guard lock(mutex);
  closed_ = closed;
  protect(closed ? PROT_NONE : PROT_READ | PROT_WRITE);
}

int& Machine::device() {
  static thread_local int number = 0;
  return number;
}

void Machine::add(cudaStream_t stream) {
  static unsigned long long count = 0;
  stream->id = ++count;
  stream->device = device();
  stream->priority = chance_.bits();
  streams_.push_back(stream);
}

void Machine::remove(cudaStream_t stream) {
  stream->removed = true;
  forget_removed();
}

void Machine::forget_removed() {
  std::erase_if(streams_, [](cudaStream_t stream) {
    if (!stream->removed || !stream->queue.empty()) return false;
    delete stream;
    return true;
  });
}

cudaStream_t Machine::default_stream() {
  cudaStream_t& stream = default_streams_[static_cast<std::size_t>(device())];
  if (stream == nullptr) add(stream = new CUstream_st);
  return stream;
}

cudaStream_t Machine::busy_stream(int device) const {
  const auto found = std::ranges::find_if(streams_, [&](cudaStream_t stream) {
    return stream->device == device && !stream->queue.empty();
  });
  return found == streams_.end() ? nullptr : *found;
}

int Machine::streams_of(int device) const {
  return static_cast<int>(std::ranges::count_if(streams_, [&](cudaStream_t stream) {
    const bool made = std::ranges::find(default_streams_, stream) == default_streams_.end();
    return made && stream->device == device && !stream->removed;
  }));
}

/// After a piece of work or several: what follows is the program's own.
void Machine::end_run() {
  if (std::exchange(open_, false)) protect(PROT_NONE);
}

bool Machine::run_head(cudaStream_t stream) {
  if (stream->queue.empty() || stream->running) return false;
  stream->running = true;
  if (closed_ && !std::exchange(open_, true)) protect(PROT_READ | PROT_WRITE);
  const bool done = stream->queue.front().run();
  stream->running = false;
  if (done) {
    ++stream->done;
    stream->queue.pop_front();
    changed_.notify_all();
  }
  return done;
}

/// The first work of the stream with the highest priority that can go on.
bool Machine::run_any(int except_device) {
  forget_removed();
  std::vector<cudaStream_t> order = streams_;
  std::sort(order.begin(), order.end(),
            [](cudaStream_t a, cudaStream_t b) { return a->priority > b->priority; });
  for (cudaStream_t stream : order) {
    if (stream->device == except_device || !run_head(stream)) continue;
    if (chance_.one_in(16)) {
      for (cudaStream_t other : streams_) other->priority = chance_.bits();
    }
    return true;
  }
  return false;
}

/// The work that stream waits for, directly or through others.
bool Machine::run_needed(cudaStream_t stream) {
  for (std::size_t depth = 0; depth <= streams_.size(); ++depth) {
    if (run_head(stream)) return true;
    if (stream->queue.empty() || stream->queue.front().needs == nullptr) return false;
    stream = stream->queue.front().needs;
    if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) return false;
  }
  return false;
}

void Machine::give(cudaStream_t stream, const Maker& make) {
  if (stream->capture != nullptr) return stream->capture->add(stream, make);
  enqueue(stream, make());
}

void Machine::enqueue(cudaStream_t stream, Work work) {
  if (stream->queue.empty()) changed_.notify_all();
  stream->queue.push_back(std::move(work));
  if (mode_ == Mode::eager) {
    while (run_any(-1)) {
    }
  } else if (mode_ == Mode::random && chance_.one_in(8)) {
    for (std::uint64_t i = chance_.below(8); i > 0 && run_any(-1); --i) {
    }
  }
  end_run();
}

bool Machine::run_for(cudaStream_t stream) {
  if (mode_ != Mode::lazy || stream == nullptr) return run_any(-1);
  return run_needed(stream) || run_any(stream->device);
}

void Machine::advance(const Mark& mark) {
  // Not one at a time: between its questions a program may sleep.
  bool goes_on = true;
  for (std::uint64_t left = 1 + chance_.below(64); goes_on && left > 0 && !mark.reached; --left) {
    goes_on = run_for(mark.stream);
  }
  if (!goes_on) changed_.notify_all();
  end_run();
}

void Machine::wait_until(std::unique_lock<std::mutex>& lock, cudaStream_t stream,
                         const std::function<bool()>& reached) {
  while (!reached()) {
    if (run_for(stream)) continue;
    end_run();
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  end_run();
}

void Machine::wait_for_others(std::unique_lock<std::mutex>& lock) {
  const auto start = std::chrono::steady_clock::now();
  const int mine = device();
  wait_until(lock, nullptr, [&] {
    return !communicates(mine) || std::chrono::steady_clock::now() - start > longest_wait;
  });
  if (!communicates(mine)) return;
  fail(mine, cudaErrorLaunchTimeout,
       "memory is freed while the device waits for a rank that does not come");
}

cudaError_t Machine::allocate(void** data, std::size_t bytes) {
  Device& owner = at(device());
  if (owner.used_bytes + bytes > memory_bytes_) return cudaErrorMemoryAllocation;
  const std::size_t taken = round_up(std::max<std::size_t>(bytes, 1), alignment);
  const std::size_t body = round_up(taken, page);
  void* mapped = mmap(nullptr, body + 2 * page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return cudaErrorMemoryAllocation;
  auto* begin = static_cast<std::byte*>(mapped);
  mprotect(begin, page, PROT_NONE);
  mprotect(begin + page + body, page, PROT_NONE);
  std::byte* start = begin + page + body - taken;
  // Only the ends of large blocks are filled, so that pages that are never used cost nothing.
  const std::size_t ends = std::min<std::size_t>(taken, 512 << 10);
  std::memset(start, 0xff, ends);
  std::memset(start + taken - ends, 0xff, ends);
  for (std::byte* at = start + bytes; at < start + taken; ++at) {
    *at = filling(reinterpret_cast<std::uintptr_t>(at));
  }
  allocations_[reinterpret_cast<std::uintptr_t>(start)] = {bytes, device(), mapped,
                                                           body + 2 * page};
  owner.used_bytes += bytes;
  if (closed_) protect(PROT_NONE);
  *data = start;
  return cudaSuccess;
}

cudaError_t Machine::release(void* data) {
  if (closed_) protect(PROT_READ | PROT_WRITE);
  check_overruns(device());
  if (closed_) protect(PROT_NONE);
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(data));
  if (found == allocations_.end()) return cudaErrorInvalidValue;
  at(found->second.device).used_bytes -= found->second.bytes;
  munmap(found->second.mapped, found->second.mapped_bytes);
  allocations_.erase(found);
  return cudaSuccess;
}

const Allocation* Machine::find(const void* address, const std::byte** begin) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto next = allocations_.upper_bound(at);
  if (next == allocations_.begin()) return nullptr;
  --next;
  const std::size_t taken = round_up(std::max<std::size_t>(next->second.bytes, 1), alignment);
  if (at >= next->first + taken) return nullptr;
  *begin = reinterpret_cast<const std::byte*>(next->first);
  return &next->second;
}

bool Machine::is_whole(const void* address, std::size_t bytes) const {
  const std::byte* begin = nullptr;
  const Allocation* allocation = find(address, &begin);
  if (allocation == nullptr) return true;
  return static_cast<const std::byte*>(address) + bytes <= begin + allocation->bytes;
}

void Machine::set(void* data, int value, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t end = begin + bytes;
  const std::uintptr_t first = round_up(begin, page);
  const std::uintptr_t last = end / page * page;
  if (value != 0 || first >= last ||
      madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0) {
    std::memset(data, value, bytes);
    return;
  }
  std::memset(data, 0, first - begin);
  std::memset(reinterpret_cast<void*>(last), 0, end - last);
}

bool Machine::is_for_streams(const void* address) const {
  if (!only_page_locked_) return true;
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  const auto after = page_locked.upper_bound(place);
  if (after == page_locked.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return place < begin + bytes;
}

void Machine::check_overruns(int device) {
  for (const auto& [start, allocation] : allocations_) {
    if (allocation.device != device) continue;
    const std::uintptr_t end =
        start + round_up(std::max<std::size_t>(allocation.bytes, 1), alignment);
    for (std::uintptr_t at = start + allocation.bytes; at < end; ++at) {
      if (*reinterpret_cast<const std::byte*>(at) == filling(at)) continue;
      return fail(device, cudaErrorIllegalAddress,
                  "an allocation of " + std::to_string(allocation.bytes) + " bytes is overrun");
    }
  }
}

void Machine::fail(int device, cudaError_t error, const std::string& message) {
  Device& failed = at(device);
  if (failed.error != cudaSuccess) return;
  failed.error = error;
  failed.message = message;
}

}  // namespace cuda_on_host
