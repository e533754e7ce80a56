// A view of contiguous row-major elements on a device. Trivially copyable; owns no memory (Slab
// does); no strides, no broadcasting.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/kinds.h"
#include "base/shape.h"

namespace trainctl {

struct Tensor {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;
  DeviceKind device = DeviceKind::cpu;

  /// Whether the tensor has no data: an optional operand that is not given.
  bool empty() const { return data == nullptr; }
  std::int64_t numel() const { return shape.numel(); }
  std::int64_t bytes() const { return shape.numel() * size_of(dtype); }
  /// rows() is the product of all dims except the last, columns() the last dim.
  std::int64_t rows() const { return shape.rank() == 0 ? 1 : shape.numel() / columns(); }
  std::int64_t columns() const { return shape.rank() == 0 ? 1 : shape.back(); }

  /// The elements, for the host, which can access only its own memory.
  template <class T>
  T* as() const {
    assert(device == DeviceKind::cpu);
    return elements<T>();
  }
  /// The elements, for kernels on the tensor's device.
  template <class T>
  T* elements() const {
    assert(dtype_of<T> == dtype);
    return static_cast<T*>(data);
  }
  /// Rows [begin, end) of the first dim.
  Tensor slice(std::int64_t begin, std::int64_t end) const {
    assert(shape.rank() > 0 && begin >= 0 && begin <= end && end <= shape[0]);
    const std::int64_t row_bytes = shape[0] == 0 ? 0 : bytes() / shape[0];
    Tensor part = *this;
    part.data = static_cast<std::byte*>(data) + begin * row_bytes;
    part.shape[0] = end - begin;
    return part;
  }
  /// A tensor with the same elements and another shape of equal numel.
  Tensor view(const Shape& other) const {
    assert(other.numel() == numel());
    Tensor result = *this;
    result.shape = other;
    return result;
  }
};

/// Indices [begin, end): of rows of a tensor, steps of a sum, or blocks.
struct Range {
  std::int64_t begin = 0, end = 0;
  /// These rows of x; empty if x is.
  Tensor of(const Tensor& x) const { return x.empty() ? x : x.slice(begin, end); }
  std::int64_t count() const { return end - begin; }
};

/// A view of `count` host elements as a tensor of shape [count].
template <class T>
Tensor host_tensor(T* data, std::int64_t count) {
  return Tensor{data, Shape{count}, dtype_of<T>, DeviceKind::cpu};
}

}  // namespace trainctl
