#include "device/slab.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/integers.h"
#include "base/text.h"
#include "base/units.h"
#include "device/cuda_device.h"

namespace trainctl {

namespace {

constexpr std::int64_t alignment = 64;
constexpr std::int64_t huge_page = std::int64_t{2} << 20;
constexpr std::int64_t page = 4096;

std::atomic<std::int64_t> held{0};

[[noreturn]] void throw_short_of_memory(std::int64_t bytes) {
  throw Error(ExitCode::unavailable, "cannot allocate " + format_bytes(bytes) +
                                         " of host memory (" + format_grouped(bytes) +
                                         " bytes): " + std::strerror(ENOMEM));
}

/// Maps whole huge pages if possible: maps one huge page too many and unmaps the unaligned ends.
void* map_huge(std::int64_t bytes) {
  const std::int64_t size = round_up(bytes, page);
  const std::int64_t mapped = size + huge_page;
  void* start = mmap(nullptr, static_cast<std::size_t>(mapped), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) throw_short_of_memory(bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  const std::int64_t before = static_cast<std::int64_t>(
      (static_cast<std::uintptr_t>(huge_page) - address % huge_page) % huge_page);
  std::byte* data = static_cast<std::byte*>(start) + before;
  if (before > 0) munmap(start, static_cast<std::size_t>(before));
  const std::int64_t after = mapped - before - size;
  if (after > 0) munmap(data + size, static_cast<std::size_t>(after));
  // This is only advice: without huge pages the block works, too.
  madvise(data, static_cast<std::size_t>(size), MADV_HUGEPAGE);
  return data;
}

void* cpu_allocate(std::int64_t bytes) {
  if (bytes >= huge_page) return map_huge(bytes);
  const std::size_t size = static_cast<std::size_t>(round_up(bytes, alignment));
  void* data = std::aligned_alloc(alignment, size);
  if (data == nullptr) throw_short_of_memory(bytes);
  return std::memset(data, 0, size);
}

void cpu_release(void* data, std::int64_t bytes) {
  if (bytes >= huge_page) {
    munmap(data, static_cast<std::size_t>(round_up(bytes, page)));
  } else {
    std::free(data);
  }
}

/// Describes rows as "12 tensors, the largest 'wte' [50304, 768] with 147 MiB".
std::string describe(const std::vector<SlabRow>& rows) {
  const SlabRow* largest = rows.data();
  for (const SlabRow& row : rows) {
    if (Slab::padded_bytes(row) > Slab::padded_bytes(*largest)) largest = &row;
  }
  return formatted("{} tensors, the largest '{}' {} with {}", rows.size(), largest->name,
                   largest->shape.to_string(), format_bytes(Slab::padded_bytes(*largest)));
}

}  // namespace

void* device_allocate(MemoryKind memory, std::int64_t bytes) {
  assert(bytes >= 0);
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  switch (memory) {
    case MemoryKind::host: data = cpu_allocate(bytes); break;
    case MemoryKind::pinned_host: data = cuda_module().allocate_host(bytes); break;
    case MemoryKind::cuda: data = cuda_allocate(bytes); break;
  }
  held += bytes;
  return data;
}

void device_release(MemoryKind memory, void* data, std::int64_t bytes) {
  if (data == nullptr) return;
  held -= bytes;
  switch (memory) {
    case MemoryKind::host: return cpu_release(data, bytes);
    case MemoryKind::pinned_host: return cuda_release_host(data);
    case MemoryKind::cuda: return cuda_release(data);
  }
}

std::int64_t device_bytes_held() { return held; }

std::int64_t Slab::padded_bytes(const SlabRow& row) {
  return round_up(row.shape.numel() * size_of(row.dtype), alignment);
}

Slab::Slab(DeviceKind device, const std::vector<SlabRow>& rows)
    : Slab(device == DeviceKind::cuda ? MemoryKind::cuda : MemoryKind::host, rows) {}

Slab Slab::on_host_for(DeviceKind device, const std::vector<SlabRow>& rows) {
  return {device == DeviceKind::cuda ? MemoryKind::pinned_host : MemoryKind::host, rows};
}

Slab::Slab(MemoryKind memory, const std::vector<SlabRow>& rows) : memory_(memory) {
  tensors_.reserve(rows.size());
  for (const SlabRow& row : rows) size_ += padded_bytes(row);
  try {
    data_ = device_allocate(memory, size_);
  } catch (const Error& error) {
    throw Error(error.code(), std::string(error.what()) + "; it was for " + describe(rows));
  }
  std::byte* place = static_cast<std::byte*>(data_);
  for (const SlabRow& row : rows) {
    const bool is_new =
        tensors_.emplace(row.name, Tensor{place, row.shape, row.dtype, device()}).second;
    assert(is_new);
    static_cast<void>(is_new);
    if (place != nullptr) place += padded_bytes(row);
  }
}

Slab::~Slab() { device_release(memory_, data_, size_); }

Slab::Slab(Slab&& other) noexcept
    : memory_(other.memory_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      tensors_(std::move(other.tensors_)) {}

Slab& Slab::operator=(Slab&& other) noexcept {
  if (this == &other) return *this;
  device_release(memory_, data_, size_);
  memory_ = other.memory_;
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  tensors_ = std::move(other.tensors_);
  return *this;
}

Tensor Slab::at(const std::string& name) const {
  assert(contains(name));
  return tensors_.at(name);
}

Tensor Slab::bytes() const { return Tensor{data_, Shape{size_}, DType::u8, device()}; }

void copy_now(const Tensor& to, const Tensor& from) {
  assert(to.bytes() == from.bytes());
  if (to.bytes() == 0) return;
  if (to.device == DeviceKind::cpu && from.device == DeviceKind::cpu) {
    std::memcpy(to.data, from.data, static_cast<std::size_t>(to.bytes()));
  } else {
    cuda_copy(to.data, from.data, to.bytes());
  }
}

HostValues::HostValues(const Tensor& tensor) : tensor_(tensor), values_(tensor) {
  if (tensor.device == DeviceKind::cpu) return;
  copy_ = Slab(DeviceKind::cpu, {{"values", tensor.shape, tensor.dtype}});
  values_ = copy_.at("values");
  copy_now(values_, tensor_);
}

void HostValues::store() const {
  if (values_.data != tensor_.data) copy_now(tensor_, values_);
}

void load_floats(const Tensor& from, float* to) {
  const std::int64_t count = from.numel();
  if (from.dtype == DType::f32) {
    std::copy_n(from.as<float>(), count, to);
  } else {
    std::transform(from.as<bf16>(), from.as<bf16>() + count, to,
                   [](bf16 value) { return to_float(value); });
  }
}

void store_floats(const float* from, const Tensor& to) {
  const std::int64_t count = to.numel();
  if (to.dtype == DType::f32) {
    std::copy_n(from, count, to.as<float>());
  } else {
    std::transform(from, from + count, to.as<bf16>(), [](float value) { return to_bf16(value); });
  }
}

}  // namespace trainctl
