// The plain kernels, one per entry of Kernels: textbook loops, used as the reference in tests of
// the fast kernels and in sanitizer builds. The callers have checked the arguments. Internal to
// lib/ops.
#pragma once

#include "ops/kernels.h"

namespace trainctl {

#define KERNEL(entry, Args) void entry##_plain(const OpContext& context, const Args& args);
#include "ops/kernels.def"
#undef KERNEL

/// The complete table of plain kernels, with the name of the backend that it implements.
constexpr Kernels plain_table(std::string_view name) {
  return Kernels{
      .name = name,
#define KERNEL(entry, Args) .entry = entry##_plain,
#include "ops/kernels.def"
#undef KERNEL
  };
}

}  // namespace trainctl
