// The plain kernels, one per entry of Kernels: the textbook loops that the fast ones are tested
// against and that the sanitizer builds run. Arguments were checked by the front doors. Internal to
// lib/ops.
#pragma once

#include "ops/kernels.h"

namespace trainctl {

#define KERNEL(entry, Args) void entry##_plain(const OpContext& context, const Args& args);
#include "ops/kernels.def"
#undef KERNEL

/// The complete table of the plain kernels, under the name of the backend that it stands for.
constexpr Kernels plain_table(std::string_view name) {
  return Kernels{
      .name = name,
#define KERNEL(entry, Args) .entry = entry##_plain,
#include "ops/kernels.def"
#undef KERNEL
  };
}

}  // namespace trainctl
