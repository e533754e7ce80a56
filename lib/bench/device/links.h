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
  std::vector<CollectiveSpeed> inside;   // among the ranks of a host; empty if it has one rank
  std::vector<CollectiveSpeed> between;  // among one rank of each host, all such groups at once
  double contention = 0;                 // relative time that sums over all ranks add to products
};

/// Collective over a world of at least two ranks. Throws Error{usage} if hosts have different
/// numbers of ranks. `plan` is for one rank and gives the products. Speeds are of this rank's
/// groups.
LinkFindings measure_links(World& world, const CommBench& options, const Plan& plan);

/// Stores the findings in `device`: tables of collectives and the link inside a host, the network
/// between hosts as one link for each rank, contention.
void take_links(const LinkFindings& found, DeviceFigures& device);

}  // namespace trainctl
