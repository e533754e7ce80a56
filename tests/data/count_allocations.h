// Counts what the whole test program takes from operator new.
#pragma once

#include <cstdint>

namespace trainctl::testing {

std::int64_t allocation_count();

}  // namespace trainctl::testing
