// What products of cuBLASLt take by the algorithms that it proposes, if a test says so
// (CUDA_ON_HOST_PRODUCT_TIMES), and its version.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuda_on_host {

inline constexpr int proposed_algorithms = 4;

/// Whether events measure these times, and nothing else.
bool product_times();
/// Counts a product that was described for so many multiprocessors; what it takes in milliseconds,
/// 0 without the variable. Under the machine's lock.
float note_product(int device, std::uint64_t proposal, int multiprocessors);
std::size_t version_on_host();

}  // namespace cuda_on_host
