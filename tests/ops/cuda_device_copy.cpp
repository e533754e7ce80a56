#include "cuda_device_copy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "base/philox.h"
#include "base/scratch.h"

using namespace trainctl;

HostTensor::HostTensor(const Shape& shape, DType dtype)
    : bytes_(static_cast<std::size_t>(shape.numel() * size_of(dtype))),
      shape_(shape),
      dtype_(dtype) {}

HostTensor HostTensor::random(const Shape& shape, DType dtype, std::uint64_t stream,
                              float deviation) {
  HostTensor result(shape, dtype);
  const Philox values(1234, stream);
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    result.set(i, deviation * values.normal(static_cast<std::uint64_t>(i)));
  }
  return result;
}

Tensor HostTensor::tensor() const {
  if (bytes_.empty()) return Tensor{};
  return Tensor{bytes_.data(), shape_, dtype_, DeviceKind::cpu};
}

double HostTensor::at(std::int64_t index) const {
  const Tensor view = tensor();
  if (dtype_ == DType::f32) return view.as<float>()[index];
  return dtype_ == DType::bf16 ? to_float(view.as<bf16>()[index])
                               : to_float(view.as<fp16>()[index]);
}

void HostTensor::set(std::int64_t index, float value) {
  const Tensor view = tensor();
  if (dtype_ == DType::f32) {
    view.as<float>()[index] = value;
  } else if (dtype_ == DType::bf16) {
    view.as<bf16>()[index] = to_bf16(value);
  } else {
    view.as<fp16>()[index] = to_fp16(value);
  }
}

DeviceCopy::DeviceCopy()
    : stream_(DeviceKind::cuda, "ops", Stream::Mode::queued),
      scratch_(DeviceKind::cuda,
               {{"scratch", Shape{scratch_bytes(DeviceKind::cuda, 1)}, DType::u8}}) {}

Tensor DeviceCopy::put(const HostTensor& host, std::int64_t offset) {
  const Tensor from = host.tensor();
  if (from.empty()) return Tensor{};
  slabs_.emplace_back(DeviceKind::cuda,
                      std::vector<SlabRow>{{"bytes", Shape{from.bytes() + offset}, DType::u8}});
  Tensor to = from;
  to.device = DeviceKind::cuda;
  to.data = static_cast<std::byte*>(slabs_.back().at("bytes").data) + offset;
  stream_.copy(to, from);
  stream_.synchronize();
  return to;
}

void* DeviceCopy::put_bytes(const void* data, std::int64_t bytes) {
  slabs_.emplace_back(DeviceKind::cuda, std::vector<SlabRow>{{"bytes", Shape{bytes}, DType::u8}});
  const Tensor to = slabs_.back().at("bytes");
  stream_.copy(to, Tensor{const_cast<void*>(data), Shape{bytes}, DType::u8, DeviceKind::cpu});
  stream_.synchronize();
  return to.data;
}

HostTensor DeviceCopy::get(const Tensor& device) {
  HostTensor result(device.shape, device.dtype);
  stream_.copy(result.tensor(), device);
  stream_.synchronize();
  return result;
}

OpContext DeviceCopy::context() {
  const Tensor scratch = scratch_.at("scratch");
  return OpContext{&kernels_for(DeviceKind::cuda), &stream_, static_cast<std::byte*>(scratch.data),
                   scratch.bytes()};
}

OpContext plain_context() {
  static std::vector<std::byte> scratch(scratch_bytes_per_thread);
  static Stream stream(DeviceKind::cpu, "plain", Stream::Mode::run_inline);
  return OpContext{&plain_kernels, &stream, scratch.data(), scratch_bytes_per_thread};
}

double difference(const HostTensor& got, const HostTensor& expected) {
  double largest = 0;
  double apart = 0;
  for (std::int64_t i = 0; i < expected.tensor().numel(); ++i) {
    if (!std::isfinite(got.at(i)) || !std::isfinite(expected.at(i))) {
      return std::numeric_limits<double>::infinity();
    }
    largest = std::max(largest, std::abs(expected.at(i)));
    apart = std::max(apart, std::abs(got.at(i) - expected.at(i)));
  }
  return largest > 0 ? apart / largest : apart;
}
