// Counts in the arithmetic of estimates.
#pragma once

#include <cstdint>

namespace trainctl {

inline double real(std::int64_t value) { return static_cast<double>(value); }

}  // namespace trainctl
