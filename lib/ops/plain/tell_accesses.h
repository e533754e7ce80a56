// Reports the memory accesses of plain kernels to the thread sanitizer, once per kernel. It does
// not instrument their loops (lib/ops/CMakeLists.txt), which would dominate the time of its tests.
// In other builds these functions do nothing.
#pragma once

#include <initializer_list>

#include "device/tensor.h"

#if defined(TRAINCTL_TELLS_TSAN)
extern "C" {
void __tsan_read_range(const void* data, unsigned long bytes);
void __tsan_write_range(void* data, unsigned long bytes);
}
#endif

namespace trainctl {

/// Reports accesses; skips tensors without data.
#if defined(TRAINCTL_TELLS_TSAN)
template <class Object>
void tell_read(const Object& object) {
  __tsan_read_range(&object, sizeof(Object));
}
inline void tell_reads(std::initializer_list<Tensor> tensors) {
  for (const Tensor& one : tensors) {
    if (!one.empty()) __tsan_read_range(one.data, static_cast<unsigned long>(one.bytes()));
  }
}
inline void tell_writes(std::initializer_list<Tensor> tensors) {
  for (const Tensor& one : tensors) {
    if (!one.empty()) __tsan_write_range(one.data, static_cast<unsigned long>(one.bytes()));
  }
}
#else
template <class Object>
void tell_read(const Object&) {}
inline void tell_reads(std::initializer_list<Tensor>) {}
inline void tell_writes(std::initializer_list<Tensor>) {}
#endif

}  // namespace trainctl
