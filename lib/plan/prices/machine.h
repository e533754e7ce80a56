// The machine of section cluster, where it names a device: figures, and the levels of its network.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/devices/figures.h"
#include "config/schema/config.h"
#include "plan/tables/mesh.h"

namespace trainctl {

/// One level of the network, with every default filled in.
struct LinkLevel {
  std::int64_t ranks = 0;  // that it joins
  double bandwidth = 0;    // bytes/s of each rank in one direction, while all of a host send
  double latency = 0;      // seconds
};

struct Machine {
  DeviceFigures device;
  SoftwareFigures software;
  std::vector<LinkLevel> levels;  // from the inside out; the last one joins all ranks

  std::int64_t hosts(std::int64_t ranks) const {
    return (ranks + levels.front().ranks - 1) / levels.front().ranks;
  }
};

/// Whether times are those of other software than this program, which no run can have.
inline bool compares_software(const ClusterConfig& cluster) {
  return cluster.device && cluster.software != "trainctl";
}

/// The levels that section cluster gives to `world` ranks of the machine.
std::vector<LinkLevel> levels_of(const ClusterConfig& cluster, const Machine& machine,
                                 std::int64_t world);

/// The machine of `world` ranks. Nothing where section cluster names no device, or one that cannot
/// be read (check_cluster in plan/rules/check.h tells why).
std::optional<Machine> machine_of(const ClusterConfig& cluster, std::int64_t world);

// How the ranks of a group lie in the levels of a network.

/// Members of a group at each level: the number of blocks of the level below (ranks, in the first)
/// that the group touches in each block of the level. Their product is the size of the group.
using GroupSpan = std::vector<double>;

/// The span of the group of `kind` around `rank`, which has `ranks` members: where these are fewer
/// than the axes of the kind span, its neighbours, or for a ring and a mirror those as far apart as
/// they can be.
GroupSpan span_of(const Mesh& mesh, const std::vector<LinkLevel>& levels, GroupKind kind,
                  std::int64_t ranks, std::int64_t rank);

/// The lowest level that joins the two ranks; the last if none does.
std::size_t joining_level(const std::vector<LinkLevel>& levels, std::int64_t one,
                          std::int64_t other);

}  // namespace trainctl
