// A tensor's values in host memory.
#pragma once

#include <cstddef>
#include <span>

#include "device/slab.h"
#include "device/tensor.h"

namespace trainctl {

/// On the CPU the tensor itself, else a copy. For use beside steps: each waits for the copy.
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
