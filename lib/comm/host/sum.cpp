#include "comm/host/host_group.h"

#include <algorithm>
#include <cassert>

#include "base/dtype.h"

namespace trainctl {

namespace {

constexpr std::int64_t block = 2048;  // elements whose sums stay in the first-level cache

template <class T>
void sum_typed(T* out, std::span<const void* const> parts, std::int64_t count) {
  alignas(64) float sums[block];
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t length = std::min(block, count - begin);
    const T* first = static_cast<const T*>(parts[0]) + begin;
    for (std::int64_t i = 0; i < length; ++i) sums[i] = to_float(first[i]);
    for (const void* part : parts.subspan(1)) {
      const T* next = static_cast<const T*>(part) + begin;
      for (std::int64_t i = 0; i < length; ++i) sums[i] += to_float(next[i]);
    }
    for (std::int64_t i = 0; i < length; ++i) out[begin + i] = from_float<T>(sums[i]);
  }
}

}  // namespace

void sum_in_rank_order(void* out, std::span<const void* const> parts, std::int64_t count,
                       DType dtype) {
  assert(!parts.empty());
  if (dtype == DType::bf16) {
    sum_typed(static_cast<bf16*>(out), parts, count);
  } else if (dtype == DType::f16) {
    sum_typed(static_cast<fp16*>(out), parts, count);
  } else {
    assert(dtype == DType::f32);
    sum_typed(static_cast<float*>(out), parts, count);
  }
}

}  // namespace trainctl
