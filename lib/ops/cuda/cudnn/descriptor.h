// A descriptor of cuDNN's backend, and who destroys it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ops/cuda/cudnn/library.h"

namespace trainctl::cuda {

/// All calls throw Error{unavailable} with cuDNN's words where it refuses.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor();

  /// `values`: `count` elements of the C type that cuDNN documents for `type`.
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void* values,
           std::int64_t count = 1);
  void set(cudnnBackendAttributeName_t name, std::int64_t value) {
    set(name, CUDNN_TYPE_INT64, &value);
  }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    set(name, CUDNN_TYPE_DATA_TYPE, &value);
  }
  void set(cudnnBackendAttributeName_t name, bool value) { set(name, CUDNN_TYPE_BOOLEAN, &value); }
  void set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &value);
  }
  void finalize();
  /// How many elements there are of those that fit.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, void* values,
                   std::int64_t room) const;
  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

}  // namespace trainctl::cuda
