// Owners of device and host memory, and access to the values of tensors from the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/tensor.h"

namespace trainctl {

/// A named tensor in a slab. Tensors are placed in order, each start aligned to 64 bytes.
struct SlabRow {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
};

enum class MemoryKind : std::uint8_t { host, pinned_host, cuda };

/// The owner of device memory: one aligned block of a size known in advance, divided into named
/// tensors. Allocates nothing after construction.
class Slab {
 public:
  Slab() = default;
  /// Allocates sum(padded_bytes(row)) zeroed bytes. Throws Error{unavailable} with the sizes if
  /// there is not enough memory.
  Slab(DeviceKind device, const std::vector<SlabRow>& rows);
  /// A slab in host memory for copies by streams of `device` (page-locked for CUDA).
  static Slab on_host_for(DeviceKind device, const std::vector<SlabRow>& rows);
  ~Slab();
  Slab(Slab&&) noexcept;
  Slab& operator=(Slab&&) noexcept;

  /// The tensor with this name, which must exist (asserted).
  Tensor at(const std::string& name) const;
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  /// The whole block as bytes (u8).
  Tensor bytes() const;
  static std::int64_t padded_bytes(const SlabRow& row);
  DeviceKind device() const {
    return memory_ == MemoryKind::cuda ? DeviceKind::cuda : DeviceKind::cpu;
  }

 private:
  Slab(MemoryKind memory, const std::vector<SlabRow>& rows);

  MemoryKind memory_ = MemoryKind::host;
  void* data_ = nullptr;
  std::int64_t size_ = 0;
  std::unordered_map<std::string, Tensor> tensors_;
};

/// The bytes that this process currently holds from device_allocate, on all devices.
std::int64_t device_bytes_held();
/// Allocates zeroed memory, 64-byte aligned; on the CPU in huge pages if the system supports them.
void* device_allocate(MemoryKind memory, std::int64_t bytes);
void device_release(MemoryKind memory, void* data, std::int64_t bytes);

// Access to a tensor's values from the host.

/// A tensor's values in host memory: for a CPU tensor its own memory, else a copy. Not for use
/// within a step, because each copy blocks the host.
class HostValues {
 public:
  /// Copies device values to the host. The caller must have waited for work that writes the tensor.
  explicit HostValues(const Tensor& tensor);

  const Tensor& values() const { return values_; }
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(values_.data), static_cast<std::size_t>(values_.bytes())};
  }
  /// Copies changed values back to the tensor.
  void store() const;

 private:
  Tensor tensor_;
  Slab copy_;
  Tensor values_;
};

/// Converts a host tensor of fp32 or bf16 to fp32.
void load_floats(const Tensor& from, float* to);
/// Converts fp32 values to the type of the host tensor `to`, rounded to nearest even.
void store_floats(const float* from, const Tensor& to);

/// Copies bytes between tensors, at least one of which is on the host, and waits for the copy. The
/// caller must have waited for work that writes `from` or uses `to`.
void copy_now(const Tensor& to, const Tensor& from);

}  // namespace trainctl
