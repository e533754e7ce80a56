#include "device/host_values.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "device/cuda_device.h"

namespace trainctl {

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
