// The bytes of tensors in host memory, as the wires of the host (threads, MPI) cut and copy them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/tensor.h"

namespace trainctl {

/// Elements: the parts of an all_reduce start at whole cache lines.
inline constexpr std::int64_t part_unit = 16;

inline std::byte* bytes_of(const Tensor& data) { return static_cast<std::byte*>(data.data); }

/// `to` and `from` are the same or do not overlap.
inline void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace trainctl
