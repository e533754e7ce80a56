// Host values that the operations of a test take as tensors of a device: a copy each, made when a
// value has changed on the host, and fetched when a result is compared. The caller has waited for
// what uses them.
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <vector>

#include "device/cuda_device.h"
#include "device/slab.h"

namespace trainctl {

class DeviceCopies {
 public:
  template <class T>
  Tensor tensor(const std::vector<T>& values) {
    const auto* begin = reinterpret_cast<const std::byte*>(values.data());
    const std::vector<std::byte> bytes(begin, begin + values.size() * sizeof(T));
    const auto size = static_cast<std::int64_t>(values.size());
    Copy& copy = copies_[values.data()];
    if (copy.values != bytes || size == 0) {
      // One element more: no values have a place, too.
      copy.slab = Slab(DeviceKind::cuda, {{"values", {size + 1}, dtype_of<T>}});
      copy.values = bytes;
      if (size > 0) cuda_copy(copy.slab.at("values").data, bytes.data(), std::ssize(bytes));
    }
    return copy.slab.at("values").slice(0, size);
  }

  template <class T>
  void fetch(std::vector<T>& values) {
    const auto found = copies_.find(values.data());
    if (found == copies_.end() || values.empty()) return;
    std::vector<std::byte>& bytes = found->second.values;
    cuda_copy(bytes.data(), found->second.slab.at("values").data, std::ssize(bytes));
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }

 private:
  struct Copy {
    Slab slab;
    std::vector<std::byte> values;  // as the host last saw them
  };
  std::map<const void*, Copy> copies_;
};

}  // namespace trainctl
