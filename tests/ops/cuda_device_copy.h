// For the tests that hold a CUDA kernel against its plain one: random host tensors, their copies on
// the device, and comparison.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "device/slab.h"
#include "ops/kernels.h"

/// A host tensor with its memory.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(const trainctl::Shape& shape, trainctl::DType dtype);

  /// Normally distributed fp32, bf16 or fp16 values; different for each `stream`.
  static HostTensor random(const trainctl::Shape& shape, trainctl::DType dtype,
                           std::uint64_t stream, float deviation = 1);

  trainctl::Tensor tensor() const;  // empty if default constructed
  double at(std::int64_t index) const;
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  void set(std::int64_t index, float value);

  mutable std::vector<std::byte> bytes_;
  trainctl::Shape shape_;
  trainctl::DType dtype_ = trainctl::DType::f32;
};

/// A device with a stream, scratch and what was copied to it.
class DeviceCopy {
 public:
  DeviceCopy();

  /// A copy of the host tensor; empty if it is. With `offset`, it starts that many bytes after an
  /// aligned place.
  trainctl::Tensor put(const HostTensor& host, std::int64_t offset = 0);
  void* put_bytes(const void* data, std::int64_t bytes);
  /// The device tensor's elements, after all that was enqueued.
  HostTensor get(const trainctl::Tensor& device);
  trainctl::OpContext context();
  /// A list of one call, on the device. It must live until the call is done.
  template <class Args>
  trainctl::Calls<Args> calls(const Args& args) {
    return trainctl::Calls<Args>({args}, &stream_);
  }

 private:
  trainctl::Stream stream_;
  trainctl::Slab scratch_;
  std::deque<trainctl::Slab> slabs_;
};

/// The context of the plain kernels on the host.
trainctl::OpContext plain_context();

/// The largest |got - expected| over the largest |expected|; infinite where one is not finite.
double difference(const HostTensor& got, const HostTensor& expected);
