// Counts every operator new of the test program (count_new.cpp replaces them).
#pragma once

#include <cstdint>

namespace trainctl {

/// Calls of operator new by all threads so far.
std::int64_t count_of_new();

}  // namespace trainctl
