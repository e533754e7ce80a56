// The machine of section cluster, if it names a device: figures, and the levels of its network.
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
  std::int64_t ranks = 0;  // number of ranks that the level joins
  double bandwidth = 0;    // bytes/s of each rank in one direction, while all ranks of a host send
  double latency = 0;      // seconds per message
};

struct Machine {
  DeviceFigures device;
  SoftwareFigures software;
  std::vector<LinkLevel> levels;  // from the inside out; the last level joins all ranks

  std::int64_t hosts(std::int64_t ranks) const {
    return (ranks + levels.front().ranks - 1) / levels.front().ranks;
  }
};

/// Whether times are estimated for other software than this program, so that no run is possible.
inline bool compares_software(const ClusterConfig& cluster) {
  return cluster.device && cluster.software != "trainctl";
}

/// The levels that section cluster gives to `world` ranks of the machine.
std::vector<LinkLevel> levels_of(const ClusterConfig& cluster, const Machine& machine,
                                 std::int64_t world);

/// The machine of `world` ranks. nullopt if section cluster names no device, or an unreadable one
/// (check_cluster in plan/rules/check.h reports why).
std::optional<Machine> machine_of(const ClusterConfig& cluster, std::int64_t world);

// The distribution of a group's ranks over the levels of a network.

/// Members of a group at each level: the number of blocks of the level below (ranks, at the first)
/// that the group touches in each block of the level. Their product is the size of the group.
using GroupSpan = std::vector<double>;

/// The span of the group of `kind` with `ranks` members around `rank`. If there are fewer members
/// than the axes span, they are neighbours; for a ring or mirror, they are as far apart as
/// possible.
GroupSpan span_of(const Mesh& mesh, const std::vector<LinkLevel>& levels, GroupKind kind,
                  std::int64_t ranks, std::int64_t rank);

/// The lowest level that joins the two ranks; the last level if none does.
std::size_t joining_level(const std::vector<LinkLevel>& levels, std::int64_t one,
                          std::int64_t other);

}  // namespace trainctl
