// The rates of the links between the ranks of a world, by level: inside a host and between hosts;
// and the slowdown of other work by a collective that runs at the same time.
#pragma once

#include <vector>

#include "bench/comm/collective_speed.h"
#include "config/devices/figures.h"
#include "plan/plan.h"

namespace trainctl {

struct LinkFindings {
  int host_ranks = 1, hosts = 1;
  std::vector<CollectiveSpeed> inside;   // of the ranks of a host; empty where it has one
  std::vector<CollectiveSpeed> between;  // of a rank of each host, all ranks of a host at once
  double contention = 0;                 // products during sums over all ranks: time added
};

/// Collective over a world of at least two ranks, with the same number on each host; else it throws
/// Error{usage}. Products are those of `plan`, of one rank. Speeds are those of the rank's groups.
LinkFindings measure_links(World& world, const CommBench& options, const Plan& plan);

/// Puts what was measured in its place: tables of collectives and the link inside a host, the
/// network between hosts as one link for each rank, contention.
void take_links(const LinkFindings& found, DeviceFigures& device);

}  // namespace trainctl
