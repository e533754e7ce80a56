// Memory of devices and of the host, and values of tensors in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/tensor.h"

namespace trainctl {

/// One named tensor to be placed. Placement is in order, each start padded to 64 bytes.
struct SlabRow {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
};

enum class MemoryKind : std::uint8_t { host, pinned_host, cuda };

/// The owner of device memory: one aligned block divided into named tensors, whose size is known in
/// advance. It allocates nothing after construction.
class Slab {
 public:
  Slab() = default;
  /// Allocates sum(padded_bytes(row)) zeroed bytes. Throws Error{unavailable} with the sizes when
  /// memory does not suffice.
  Slab(DeviceKind device, const std::vector<SlabRow>& rows);
  /// A slab in host memory from and to which streams of `device` copy (page-locked for CUDA).
  static Slab on_host_for(DeviceKind device, const std::vector<SlabRow>& rows);
  ~Slab();
  Slab(Slab&&) noexcept;
  Slab& operator=(Slab&&) noexcept;

  /// The tensor of that name; asserts that it exists.
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

/// The bytes that this process currently holds through device_allocate, on all devices.
std::int64_t device_bytes_held();
/// Raw memory, 64-byte aligned, zeroed; on the CPU in huge pages if the system supports them.
void* device_allocate(MemoryKind memory, std::int64_t bytes);
void device_release(MemoryKind memory, void* data, std::int64_t bytes);

// A tensor's values in host memory.

/// On the CPU the tensor itself, else a copy. Not for use within a step: each call waits for its
/// copy.
class HostValues {
 public:
  /// Copies. The caller has waited for what writes the tensor.
  explicit HostValues(const Tensor& tensor);

  const Tensor& values() const { return values_; }
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(values_.data), static_cast<std::size_t>(values_.bytes())};
  }
  /// After the values were changed: copies them back.
  void store() const;

 private:
  Tensor tensor_;
  Slab copy_;
  Tensor values_;
};

/// The values of a tensor of the host, fp32 or bf16, as fp32.
void load_floats(const Tensor& from, float* to);
/// The other way round: to bf16 they are rounded to nearest even.
void store_floats(const float* from, const Tensor& to);

/// Copies the same bytes between tensors, of which one is on the host, and waits for that. The
/// caller has waited for what writes `from` and for what uses `to`.
void copy_now(const Tensor& to, const Tensor& from);

}  // namespace trainctl
