// The times of products of cuBLASLt by the algorithms that it proposes, if a test sets them
// (CUDA_ON_HOST_PRODUCT_TIMES), and its version.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuda_on_host {

inline constexpr int proposed_algorithms = 4;

/// Whether events measure these times, and nothing else.
bool product_times();
/// Counts a product that was described for this number of multiprocessors. Returns its time in
/// milliseconds, 0 without the variable. Under the machine's lock.
float note_product(int device, std::uint64_t proposal, int multiprocessors);
std::size_t version_on_host();

}  // namespace cuda_on_host
