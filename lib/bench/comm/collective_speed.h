// The time and bandwidth of each collective over the ranks of a world, as nccl-tests defines them
// (its doc/PERFORMANCE.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "comm/world.h"

namespace trainctl {

struct CollectiveSpeed {
  std::string operation;      // "all_reduce"; "send_receive": messages around the ring
  std::int64_t bytes = 0;     // whole tensor: a gather's result, a reduce-scatter's input
  double seconds = 0;         // time of one call, the mean of all on the slowest rank
  double algorithm_rate = 0;  // bytes per second
  double bus_rate = 0;        // algorithm_rate * bus_factor()
  std::int64_t wrong = 0;     // elements of all ranks that were not right after the first call
};

/// The least part of each byte that a rank's link carries: 2 (n - 1) / n for all_reduce, (n - 1) /
/// n for reduce_scatter, all_gather and all_to_all, else 1.
double bus_factor(const std::string& operation, int ranks);

/// The sizes [bytes] between the limits, each a multiple of one float per rank.
std::vector<std::int64_t> sizes_of(const CommBench& options, int ranks);

/// Measures every operation at every size over `ranks`, at least two including this one, in the
/// order of operation names. Collective over the world: each rank is in one such group, and the
/// groups measure at once. A device must be selected. All ranks of a group get the same result.
std::vector<CollectiveSpeed> measure_collectives(World& world, const CommBench& options,
                                                 std::span<const int> ranks);
/// Measures over all ranks of the world.
std::vector<CollectiveSpeed> measure_collectives(World& world, const CommBench& options);

}  // namespace trainctl
