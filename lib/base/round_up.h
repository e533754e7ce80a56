// Divisions that round up.
#pragma once

#include <cstdint>

namespace trainctl {

/// The least whole number that is not below value / unit; value >= 0, unit > 0.
constexpr std::int64_t divide_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit;
}

/// The least multiple of `unit` that is not below `value`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return divide_up(value, unit) * unit;
}

}  // namespace trainctl
